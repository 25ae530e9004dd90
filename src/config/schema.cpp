#include "config/schema.h"

#include "core/error.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace palimpsest {

Limits at_least(double low) {
    Limits limits;
    limits.low = low;
    return limits;
}

Limits above(double low) {
    Limits limits = at_least(low);
    limits.low_open = true;
    return limits;
}

Limits between(double low, double high) {
    Limits limits = at_least(low);
    limits.high = high;
    return limits;
}

const Option* AnySchema::find(std::string_view name) const {
    const auto option = std::find_if(options_.begin(), options_.end(), [&](const Option& o) { return o.name == name; });
    return option == options_.end() ? nullptr : &*option;
}

void AnySchema::add(Option option) {
    PALIMPSEST_ASSERT(!find(option.name), "option '{}' is declared twice", option.name);
    options_.push_back(std::move(option));
}

void AnySchema::read(void* object, const Value& map, std::string_view section, Diagnostics& errors,
                     const std::vector<std::string>& also_allowed) const {
    if (map.kind == Value::Kind::null) return;  // "train:" with every key commented out
    if (map.kind != Value::Kind::map) {
        errors.error(map.source, fmt::format("'{}' expects a map of options, got {}", section,
                                             map.kind == Value::Kind::list ? "a list" : "'" + map.text + "'"));
        return;
    }
    for (const Value::Entry& entry : map.entries) {
        if (const Option* option = find(entry.key)) {
            option->read(object, entry.value, section.empty() ? entry.key : fmt::format("{}.{}", section, entry.key), errors);
            continue;
        }
        if (std::find(also_allowed.begin(), also_allowed.end(), entry.key) != also_allowed.end()) continue;
        std::vector<std::string> known = also_allowed;
        for (const Option& option : options_) known.push_back(option.name);
        std::string hint = did_you_mean(entry.key, known);
        if (hint.empty()) {
            std::sort(known.begin(), known.end());
            hint = fmt::format("; known keys: {}", join(known, ", "));
        }
        const std::string place = section.empty() ? "" : fmt::format(" in '{}'", section);
        errors.error(entry.source, fmt::format("unknown key '{}'{}{}", entry.key, place, hint));
    }
}

Value AnySchema::write(const void* object) const {
    Value map = Value::map();
    for (const Option& option : options_) map.set(option.name, option.write(object));
    return map;
}

Value AnySchema::write_identity(const void* object) const {
    const std::shared_ptr<void> defaults = make_default();
    Value map = Value::map();
    for (const Option& option : options_) {
        if (!option.identity) continue;
        if (option.nested) {
            Value nested = option.nested->write_identity(option.member(object));
            if (!nested.entries.empty()) map.set(option.name, std::move(nested));
            continue;
        }
        Value value = option.write(object);
        if (!value.same_content(option.write(defaults.get()))) map.set(option.name, std::move(value));
    }
    return map;
}

}  // namespace palimpsest
