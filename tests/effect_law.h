// The law of effects, for whatever has a schema: an option that changes nothing beside some value of another says so (used_when),
// and one that says so changes nothing there.
#pragma once

#include "config/schema_fields.h"
#include "option_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace palimpsest {

// What the options make, as a text that is equal where nothing differs; "" where they do not fit together.
using Outcome = std::function<std::string(const void* options)>;

class EffectLaw {
public:
    EffectLaw(const AnySchema& schema, Outcome outcome) : schema_(schema), outcome_(std::move(outcome)) {}

    // One line for each breach, seen from each of `bases`: sets of options beside which most others have an effect.
    std::vector<std::string> breaches(const std::vector<std::shared_ptr<void>>& bases) {
        for (const std::shared_ptr<void>& base : bases) {
            const std::set<std::string> effective =
                judge(base.get(), "at " + emit_flow(schema_.write_all(base.get())), nullptr, {});
            effective_.insert(effective.begin(), effective.end());
            for (const Option& other : schema_.options())
                for (const auto& [value, object] : alternatives(base.get(), other))
                    judge(object.get(), fmt::format("beside {}: {}", other.name, value), &other,
                          decides(other, value) ? effective : std::set<std::string>{});
        }
        for (const Option& option : schema_.options())
            if (effective_.count(option.name) == 0) breaches_.insert(fmt::format("'{}' has no effect anywhere", option.name));
        return {breaches_.begin(), breaches_.end()};
    }

private:
    // The object with another value of one option, each that is accepted.
    std::vector<std::pair<std::string, std::shared_ptr<void>>> alternatives(const void* object, const Option& option) const {
        std::vector<std::string> values = option_words(option);
        if (option.type == "integer") values = {"1", "2", "3", "4", "5", "8", "200"};
        else if (option.type == "number") values = {"0.25", "0.5", "1", "2", "-1"};
        else if (option.type == "range") values = {"0", "1", "2", "0..3", "30..60"};
        std::vector<std::pair<std::string, std::shared_ptr<void>>> found;
        for (const std::string& value : values) {
            std::shared_ptr<void> other = schema_.copy(object);
            Diagnostics errors;
            option.read(other.get(), parse_yaml("law", "v: " + value).entries.at(0).value, option.name, errors);
            if (errors.empty() && !option.write(other.get()).same_content(option.write(object)))
                found.emplace_back(value, std::move(other));
        }
        return found;
    }

    // Words, flags and an empty range switch others off; between two numbers it may be chance that nothing changes.
    static bool decides(const Option& option, const std::string& value) {
        return option.type == "word" || option.type == "true or false" || (option.type == "range" && value == "0");
    }

    // The options that have an effect. `other` was changed, and should have left those of `expected` their effect.
    std::set<std::string> judge(const void* object, const std::string& where, const Option* other,
                                const std::set<std::string>& expected) {
        std::set<std::string> effective;
        const std::string before = outcome_(object);
        if (before.empty()) return effective;
        for (const Option& option : schema_.options()) {
            if (&option == other) continue;
            bool tried = false, changed = false;
            for (const auto& [value, changed_object] : alternatives(object, option)) {
                const std::string after = outcome_(changed_object.get());
                tried = tried || !after.empty();
                changed = changed || (!after.empty() && after != before);
            }
            if (changed) effective.insert(option.name);
            const bool counts = schema_.counts(option, object);
            if (changed && !counts)
                breaches_.insert(fmt::format("'{}' has an effect {}, though it says that it has none", option.name, where));
            if (tried && !changed && counts && expected.count(option.name) > 0)
                breaches_.insert(fmt::format("'{}' has no effect {}, and does not say so", option.name, where));
        }
        return effective;
    }

    const AnySchema& schema_;
    Outcome outcome_;
    std::set<std::string> breaches_, effective_;
};

}  // namespace palimpsest
