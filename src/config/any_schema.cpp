#include "config/any_schema.h"

#include "core/error.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

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
    for (const Option& option : options_)
        if (counts(option, object)) map.set(option.name, option.write(object));
    return map;
}

Value AnySchema::write_all(const void* object) const {
    Value map = Value::map();
    for (const Option& option : options_)
        map.set(option.name, option.nested ? option.nested->write_all(option.member(object)) : option.write(object));
    return map;
}

Value AnySchema::write_identity(const void* object) const {
    Value map = Value::map();
    for (const Option& option : options_) {
        if (!option.identity || !counts(option, object)) continue;
        if (option.nested) {
            Value nested = option.nested->write_identity(option.member(object));
            if (!nested.entries.empty()) map.set(option.name, std::move(nested));
            continue;
        }
        if (!is_default(option, object)) map.set(option.name, option.write(object));
    }
    return map;
}

bool AnySchema::counts(const Option& option, const void* object) const {
    const auto holds = [&](const Condition& condition) {
        const Option* other = find(condition.option);
        PALIMPSEST_ASSERT(other, "'{}' depends on '{}', which is no option", option.name, condition.option);
        // An option that does not count stands at its default.
        const bool settled = other != &option && !counts(*other, object);
        const std::string value = emit_flow(other->write(settled ? make_default().get() : object));
        const bool listed = std::find(condition.values.begin(), condition.values.end(), value) != condition.values.end();
        return listed != condition.negated;
    };
    return std::all_of(option.used_when.begin(), option.used_when.end(),
                       [&](const AnyOf& any) { return std::any_of(any.begin(), any.end(), holds); });
}

bool AnySchema::is_default(const Option& option, const void* object) const {
    return option.write(object).same_content(option.write(make_default().get()));
}

void AnySchema::settle(void* object) const {
    const std::shared_ptr<void> defaults = make_default(), before = copy(object);
    Diagnostics none;
    for (const Option& option : options_) {
        if (option.nested) option.nested->settle(const_cast<void*>(option.member(object)));
        else if (!counts(option, before.get())) option.read(object, option.write(defaults.get()), option.name, none);
    }
    PALIMPSEST_ASSERT(none.empty(), "a default is refused: {}", none.report());
}

std::string AnySchema::where_used(const Option& option, std::string_view section) const {
    const auto in_words = [&](const Condition& condition) {
        std::string values = join(condition.values, ", ");
        if (const auto comma = values.rfind(", "); comma != std::string::npos) values.replace(comma, 2, " or ");
        return fmt::format("{}{}{} is {}{}", section, section.empty() ? "" : ".", condition.option, condition.negated ? "not " : "",
                           values);
    };
    std::vector<std::string> all;
    for (const AnyOf& any : option.used_when) {
        std::vector<std::string> words;
        for (const Condition& condition : any) words.push_back(in_words(condition));
        all.push_back(join(words, " or "));
    }
    return join(all, " and ");
}

std::vector<std::string> AnySchema::decided_by(const Option& option) const {
    std::vector<std::string> names;
    for (const AnyOf& any : option.used_when)
        for (const Condition& condition : any) {
            if (condition.option == option.name) continue;
            names.push_back(condition.option);
            for (std::string& name : decided_by(*find(condition.option))) names.push_back(std::move(name));
        }
    return names;
}

bool AnySchema::looks_at(std::string_view key) const {
    return std::find(other_keys_.begin(), other_keys_.end(), key) != other_keys_.end();
}

}  // namespace palimpsest
