// Options as the reader, `describe` and the registries see them: the schema of a struct that they do not know.
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

}  // namespace palimpsest
