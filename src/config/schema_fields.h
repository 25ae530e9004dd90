// Reads and writes the members of an options struct. schema_fields.cpp holds the rules for literals; docs/config.md explains them
// to users.
#pragma once

#include "config/any_schema.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace palimpsest::fields {

// Each `read` puts `value` into `out`, or reports what is wrong with `path` and leaves `out` alone.
void read(std::int64_t& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors);
void read(double& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors);
// Reads a number that is used in single precision: rounded to it, the number must still keep its limits, be finite, and be zero
// only where it is written as zero.
void read_single(double& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors);
void read(bool& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors);
void read(std::string& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors);
void read(Range& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors);
// Returns the index of the word, or -1 after an error.
int read_word(const Value& value, std::string_view path, const std::vector<std::string>& words, Diagnostics& errors);
bool is_list(const Value& value, std::string_view path, std::string_view of,
             Diagnostics& errors);  // reports an error where it is not

// Each `write` is exact: `read` makes the same value of its result.
Value write(std::int64_t value);
Value write(double value);
Value write(bool value);
Value write(const std::string& value);
Value write(const Range& value);

std::string allowed(const Limits& limits);                   // "at least 1", "above 0", "0 to 1", ""
std::string allowed(const std::vector<std::string>& words);  // "elu | relu"

template <class M>
constexpr const char* type_name() {
    if constexpr (std::is_same_v<M, bool>) return "true or false";
    else if constexpr (std::is_same_v<M, std::int64_t>) return "integer";
    else if constexpr (std::is_same_v<M, double>) return "number";
    else if constexpr (std::is_same_v<M, std::string>) return "text";
    else if constexpr (std::is_same_v<M, Range>) return "range";
    else if constexpr (std::is_same_v<M, std::vector<bool>>) return "list of true or false";
    else if constexpr (std::is_same_v<M, std::vector<std::int64_t>>) return "list of integers";
    else if constexpr (std::is_same_v<M, std::vector<double>>) return "list of numbers";
    else if constexpr (std::is_same_v<M, std::vector<std::string>>) return "list of texts";
    else if constexpr (requires { M::value_type::list_name; }) return M::value_type::list_name;
    else static_assert(!sizeof(M), "an option is an int64_t, double, bool, string, Range, or a vector of the first four");
}

// A struct as an item needs a `list_name`, and a `read` and a `write` beside it.
template <class E>
void read(std::vector<E>& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors) {
    if (!is_list(value, path, type_name<std::vector<E>>(), errors)) return;
    std::vector<E> list;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        E item{};
        read(item, value.items[i], std::string(path) + "." + std::to_string(i), limits, errors);
        list.push_back(std::move(item));
    }
    out = std::move(list);
}

template <class E>
Value write(const std::vector<E>& list) {
    Value value = Value::list();
    for (const E& item : list) value.items.push_back(write(item));
    return value;
}

}  // namespace palimpsest::fields
