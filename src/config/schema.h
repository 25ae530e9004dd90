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

#include "config/diagnostics.h"
#include "config/value.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace palimpsest {

// A `Range` is written `0..3`, both ends included; a plain `3` reads as 3..3.
struct Range {
    std::int64_t low = 0, high = 0;
    bool operator==(const Range&) const = default;
};

// The `Limits` of a number are its allowed values, ends included unless they are open.
struct Limits {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
    bool low_open = false, high_open = false;  // open: the end itself is not allowed
};
Limits at_least(double low);
Limits above(double low);
Limits between(double low, double high);

// A `Condition` is what another option of the same struct must hold for an option to count: one of `values`, written as in the
// resolved config, or none of them where `negated`.
struct Condition {
    std::string option;
    std::vector<std::string> values;
    bool negated = false;
};
using AnyOf = std::vector<Condition>;

// An `Option` is one key, as `describe` and the reference pages show it, and as the reader uses it on a type-erased object.
struct Option {
    std::string name, type, default_text, allowed, meaning;
    bool identity = true;          // false: does not make another run (device, threads, cadence…)
    std::vector<AnyOf> used_when;  // all of them must hold; where there are none the option always counts
    std::vector<std::pair<std::string, std::string>> cautions;  // a value, and the caution about choosing it
    std::function<void(void* object, const Value& value, std::string_view path, Diagnostics&)> read;
    std::function<Value(const void* object)> write;
    const class AnySchema* nested = nullptr;                // of a group: the schema of its map
    std::function<const void*(const void* object)> member;  // of a group: the nested object
};

// An `AnySchema` is a schema whose struct the reader does not know. The registries hold these.
class AnySchema {
public:
    virtual ~AnySchema() = default;
    virtual std::shared_ptr<void> make_default() const = 0;
    virtual std::shared_ptr<void> copy(const void* object) const = 0;
    const std::vector<Option>& options() const { return options_; }
    const Option* find(std::string_view name) const;

    // Reads a map into *object. Keys that the map lacks keep the value that *object has. Unknown keys are errors with did-you-mean,
    // except those in `also_allowed`, which another reader takes. `section` names the place in messages ("task", "mixers.delta").
    void read(void* object, const Value& map, std::string_view section, Diagnostics&,
              const std::vector<std::string>& also_allowed = {}) const;
    Value write(const void* object) const;           // every key that counts, resolved
    Value write_all(const void* object) const;       // every key
    Value write_identity(const void* object) const;  // only identity keys that count and differ from the default

    bool counts(const Option& option, const void* object) const;
    bool is_default(const Option& option, const void* object) const;
    // Sets options that do not count back to their defaults, so that nothing can depend on them.
    void settle(void* object) const;
    // Says where the option counts: "mixers.linear.feature_map is dpfp"; "" where it always counts.
    std::string where_used(const Option& option, std::string_view section = "") const;
    // Returns the options that decide whether this option counts.
    std::vector<std::string> decided_by(const Option& option) const;

    // Returns whether the owner of the options looks at a key of the config outside of them, as a mixer may at "model.positions".
    bool looks_at(std::string_view key) const;

protected:
    void add(Option option);
    std::vector<Option> options_;
    std::vector<std::string> other_keys_;
};

template <class T>
class Schema : public AnySchema {
public:
    std::shared_ptr<void> make_default() const override { return std::make_shared<T>(); }
    std::shared_ptr<void> copy(const void* object) const override { return std::make_shared<T>(*static_cast<const T*>(object)); }

    // Adds an option with a value of its own. M is std::int64_t, double, bool, std::string, Range, or a vector of the first four.
    template <class M>
    Schema& field(std::string name, M T::*member, Limits limits, std::string meaning);
    template <class M>
    Schema& field(std::string name, M T::*member, std::string meaning) {
        return field(std::move(name), member, Limits{}, std::move(meaning));
    }
    // Adds an option that is one of a fixed set of words.
    template <class E>
    Schema& choice(std::string name, E T::*member, std::vector<std::pair<std::string, E>> words, std::string meaning);
    // Adds a nested map with a schema of its own, which must outlive this one.
    template <class S>
    Schema& group(std::string name, S T::*member, const Schema<S>& schema, std::string meaning);
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

#include "config/schema_fields.h"  // the bodies of the templates
