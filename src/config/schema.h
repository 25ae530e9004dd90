// A schema binds the members of a plain struct to keys of a YAML map: one list serves reading, validation, `describe`, the reference
// pages, the resolved config and the run's identity. Tasks, mixers and the tool's own sections are all described this way.
//
//     struct Options { std::int64_t heads = 2; bool normalise = true; Map map = Map::elu; Range overwrites{0, 3}; };
//     const Schema<Options>& options_schema() {
//         static const Schema<Options> schema = Schema<Options>()
//             .field("heads", &Options::heads, at_least(1), "number of heads; divides the width")
//             .field("normalise", &Options::normalise, "divide by the sum of the keys")
//             .choice("feature_map", &Options::map, {{"elu", Map::elu}, {"relu", Map::relu}}, "phi, applied per head")
//             .field("overwrites", &Options::overwrites, between(0, 100), "changes per key, spread over the keys of an example");
//         return schema;
//     }
//
// A member's initial value in the struct is its default.
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

// `0..3`, both ends included; a plain `3` reads as 3..3.
struct Range {
    std::int64_t low = 0, high = 0;
    bool operator==(const Range&) const = default;
};

// Allowed values of a number; both ends included unless said.
struct Limits {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
    bool low_open = false, high_open = false;  // open: the end itself is not allowed
};
Limits at_least(double low);
Limits above(double low);
Limits between(double low, double high);

// One key, as `describe` and the reference pages show it, and as the reader uses it on a type-erased object.
struct Option {
    std::string name, type, default_text, allowed, meaning;
    bool identity = true;  // false: device, threads, cadence… do not make another run
    std::function<void(void* object, const Value& value, std::string_view path, Diagnostics&)> read;
    std::function<Value(const void* object)> write;
    const class AnySchema* nested = nullptr;  // of a group
    std::function<const void*(const void* object)> member;  // of a group: the nested object
};

// What the registries hold: a schema whose struct is not known to the reader.
class AnySchema {
public:
    virtual ~AnySchema() = default;
    virtual std::shared_ptr<void> make_default() const = 0;
    virtual std::shared_ptr<void> copy(const void* object) const = 0;
    const std::vector<Option>& options() const { return options_; }
    const Option* find(std::string_view name) const;

    // Reads a map into *object. Keys not present keep the value that *object already has. Unknown keys are errors with did-you-mean,
    // except those listed in `also_allowed` (read by somebody else). `section` names the place in messages ("task", "mixers.delta").
    void read(void* object, const Value& map, std::string_view section, Diagnostics&,
              const std::vector<std::string>& also_allowed = {}) const;
    Value write(const void* object) const;                    // every key, resolved
    Value write_identity(const void* object) const;           // only identity keys that differ from the default

protected:
    void add(Option option);
    std::vector<Option> options_;
};

template <class T>
class Schema : public AnySchema {
public:
    std::shared_ptr<void> make_default() const override { return std::make_shared<T>(); }
    std::shared_ptr<void> copy(const void* object) const override { return std::make_shared<T>(*static_cast<const T*>(object)); }

    // M: std::int64_t, double, bool, std::string, Range, std::vector of the first four.
    template <class M>
    Schema& field(std::string name, M T::*member, Limits limits, std::string meaning);
    template <class M>
    Schema& field(std::string name, M T::*member, std::string meaning) {
        return field(std::move(name), member, Limits{}, std::move(meaning));
    }
    // One of a fixed set of words.
    template <class E>
    Schema& choice(std::string name, E T::*member, std::vector<std::pair<std::string, E>> words, std::string meaning);
    // A nested map with a schema of its own (must outlive this one).
    template <class S>
    Schema& group(std::string name, S T::*member, const Schema<S>& schema, std::string meaning);
    // The option added last does not make another run.
    Schema& not_identity() {
        options_.back().identity = false;
        return *this;
    }
};

}  // namespace palimpsest

#include "config/schema_fields.h"  // the templates' bodies
