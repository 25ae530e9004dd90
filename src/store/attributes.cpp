#include "store/attributes.h"

#include "config/schema_fields.h"

namespace palimpsest {
Attribute native(const Value& value) {
    if (value.kind != Value::Kind::scalar) return emit_flow(value);
    if (value.quoted) return value.text;
    Diagnostics ignored;
    std::int64_t integer = 0;
    fields::read(integer, value, "", {}, ignored);
    if (ignored.empty()) return integer;
    Diagnostics ignored_too;
    double number = 0;
    fields::read(number, value, "", {}, ignored_too);
    if (ignored_too.empty()) return number;
    return value.text;
}

namespace {

void flatten(const Value& value, const std::string& path, Attributes& out) {
    const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
    // Segments have keys of their own; the layers of a model are one value, whether they have options or not.
    const bool of_maps = value.kind == Value::Kind::list && !value.items.empty() && value.items.front().kind == Value::Kind::map &&
                         path != "model.layers";
    if (value.kind == Value::Kind::map) {
        for (const Value::Entry& entry : value.entries) flatten(entry.value, below(entry.key), out);
    } else if (of_maps) {
        for (std::size_t i = 0; i < value.items.size(); ++i) flatten(value.items[i], below(std::to_string(i)), out);
    } else {
        out.emplace_back(path, native(value));
    }
}

}  // namespace

Attributes flat_config(const Value& resolved) {
    Attributes out;
    flatten(resolved, "", out);
    return out;
}

}  // namespace palimpsest
