// A schema binds members of a plain struct to keys of a YAML map. One list serves reading, validation, `describe`, the reference
// pages, the resolved config and the run's identity. Tasks, mixers and the tool's own sections are all described this way.
//
//     struct Options {
//         std::int64_t heads = 2;
//         bool normalise = true;
//         Map map = Map::elu;
//         double slope = 0.1;
//         Range overwrites{0, 3};
//     };
//     const Schema<Options>& options_schema() {
//         static const Schema<Options> schema = Schema<Options>()
//             .field("heads", &Options::heads, at_least(1), "number of heads; divides the width")
//             .field("normalise", &Options::normalise, "divide by the sum of the keys")
//             .choice("feature_map", &Options::map, {{"elu", Map::elu}, {"relu", Map::relu}}, "phi, applied per head")
//             .field("slope", &Options::slope, above(0), "of relu below 0")
//             .used_when("feature_map", {"relu"})
//             .field("overwrites", &Options::overwrites, between(0, 100), "changes per key, spread over the keys of an example");
//         return schema;
//     }
//
// A member's initial value in the struct is its default. `used_when` marks an option that counts only beside certain values of
// another: where it does not count, it is no part of a run's identity or record, and setting it is an error (config/effect.h).
#pragma once

#include "config/any_schema.h"
#include "config/schema_fields.h"
#include "core/error.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace palimpsest {

template <class T>
class Schema : public AnySchema {
public:
    std::shared_ptr<void> make_default() const override { return std::make_shared<T>(); }
    std::shared_ptr<void> copy(const void* object) const override { return std::make_shared<T>(*static_cast<const T*>(object)); }

    // Adds an option with a value of its own. M is std::int64_t, double, bool, std::string, Range, or a vector of the first four.
    template <class M>
    Schema& field(std::string name, M T::*member, Limits limits, std::string meaning) {
        Option option;
        option.name = std::move(name);
        option.type = fields::type_name<M>();
        option.default_text = emit_flow(fields::write(T{}.*member));
        option.allowed = fields::allowed(limits);
        option.meaning = std::move(meaning);
        option.read = [member, limits](void* object, const Value& value, std::string_view path, Diagnostics& errors) {
            if constexpr (std::is_same_v<M, double>)
                fields::read_single(static_cast<T*>(object)->*member, value, path, limits, errors);
            else fields::read(static_cast<T*>(object)->*member, value, path, limits, errors);
        };
        option.write = [member](const void* object) { return fields::write(static_cast<const T*>(object)->*member); };
        add(std::move(option));
        return *this;
    }
    template <class M>
    Schema& field(std::string name, M T::*member, std::string meaning) {
        return field(std::move(name), member, Limits{}, std::move(meaning));
    }
    // Adds an option that is one of a fixed set of words.
    template <class E>
    Schema& choice(std::string name, E T::*member, std::vector<std::pair<std::string, E>> words, std::string meaning) {
        std::vector<std::string> names;
        for (const auto& word : words) names.push_back(word.first);
        Option option;
        option.name = std::move(name);
        option.type = "word";
        option.allowed = fields::allowed(names);
        option.meaning = std::move(meaning);
        option.read = [member, names, words](void* object, const Value& value, std::string_view path, Diagnostics& errors) {
            const int index = fields::read_word(value, path, names, errors);
            if (index >= 0) static_cast<T*>(object)->*member = words[static_cast<std::size_t>(index)].second;
        };
        option.write = [member, words](const void* object) {
            const E value = static_cast<const T*>(object)->*member;
            const auto word = std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.second == value; });
            PALIMPSEST_ASSERT(word != words.end(), "no word for enumerator {}", static_cast<int>(value));
            return fields::write(word->first);
        };
        const T defaults{};
        option.default_text = emit_flow(option.write(&defaults));
        add(std::move(option));
        return *this;
    }
    // Adds a nested map with a schema of its own, which must outlive this one.
    template <class S>
    Schema& group(std::string name, S T::*member, const Schema<S>& schema, std::string meaning) {
        Option option;
        option.name = std::move(name);
        option.type = "map";
        option.meaning = std::move(meaning);
        option.nested = &schema;
        option.member = [member](const void* object) -> const void* { return &(static_cast<const T*>(object)->*member); };
        option.read = [member, &schema](void* object, const Value& value, std::string_view path, Diagnostics& errors) {
            schema.read(&(static_cast<T*>(object)->*member), value, path, errors);
        };
        option.write = [member, &schema](const void* object) { return schema.write(&(static_cast<const T*>(object)->*member)); };
        const T defaults{};
        option.default_text = emit_flow(option.write(&defaults));
        add(std::move(option));
        return *this;
    }
    // Marks the option added last as one that does not make another run.
    Schema& not_identity() {
        options_.back().identity = false;
        return *this;
    }
    // Makes the option added last count only where `option` holds one of `values`. Of several calls all conditions must hold.
    Schema& used_when(std::string option, std::vector<std::string> values) {
        return used_when_any({{std::move(option), std::move(values)}});
    }
    Schema& used_unless(std::string option, std::vector<std::string> values) {
        return used_when_any({{std::move(option), std::move(values), true}});
    }
    Schema& used_when_any(AnyOf any) {
        options_.back().used_when.push_back(std::move(any));
        return *this;
    }
    // Adds a caution for whoever gives the option added last this value.
    Schema& caution(std::string value, std::string text) {
        options_.back().cautions.emplace_back(std::move(value), std::move(text));
        return *this;
    }
    // Names the keys outside of these options that their owner looks at; see AnySchema::looks_at.
    Schema& reads(std::vector<std::string> keys) {
        other_keys_ = std::move(keys);
        return *this;
    }
};

}  // namespace palimpsest
