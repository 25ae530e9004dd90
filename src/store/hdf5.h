// A small layer over the HDF5 C library: handles that close themselves, failures as exceptions with the library's own words, and
// the few kinds of object that our files consist of (docs/results_format.md).
//
// A file lives in memory, as a growing image; core/file.h puts images on disk whole. So HDF5 opens, locks and half-writes nothing
// there. The library is not thread-safe: whoever calls a function holds a Guard meanwhile; handles take their own when they close.
#pragma once

#include "store/attributes.h"

#include <hdf5.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace palimpsest::hdf5 {

// The library refused. Callers know the file's path, and turn this into an Error that names it.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// One process-wide mutex; may be taken again by its holder.
class Guard {
public:
    Guard();

private:
    std::lock_guard<std::recursive_mutex> lock_;
};

// Closes what it holds with its last copy.
class Handle {
public:
    using Closer = herr_t (*)(hid_t);
    // Throws Failure when the library gave no handle; `what` says what was tried: "open dataset 'step'".
    Handle(hid_t id, Closer closer, const std::string& what);
    operator hid_t() const { return *id_; }

private:
    std::shared_ptr<const hid_t> id_;
};

// Throws Failure when `status` is negative.
void check(herr_t status, const std::string& what);

Handle create_file();  // empty, in memory
// Opens the file that these bytes are. Changes to a writable one stay in memory.
enum class Access { read, write };
Handle open_file(const std::string& image, Access access = Access::read);
std::string image(hid_t file);  // the bytes of the file as it is now

Handle create_group(hid_t parent, const std::string& name);
Handle open_group(hid_t parent, const std::string& name);
Handle open_dataset(hid_t parent, const std::string& name);
bool exists(hid_t parent, const std::string& name);  // `name` is one component
bool is_group(hid_t parent, const std::string& name);
std::vector<std::string> children(hid_t group);  // in order of creation where the file tracks it

std::vector<hsize_t> shape(hid_t dataset);

// All that may stand in a file: no bool, enum, compound, fixed-length text or reference, which trip readers in other languages.
using Values = std::variant<std::span<const std::int8_t>, std::span<const std::uint8_t>, std::span<const std::int64_t>,
                            std::span<const float>, std::span<const double>, std::span<const std::string>>;

struct About {
    std::string units = {}, long_name = {};  // attributes unless empty
    // Along the first axis, in chunks; numbers are compressed then (shuffle and deflate).
    bool grows = false;
    // Tells readers that NaN or -1 in a column of numbers means "not measured". Not for axes and counts: those become floats in
    // xarray then.
    bool gaps = false;
};
// A dimension scale: the named, shared axis by which netCDF and xarray know a dataset.
Handle write_axis(hid_t parent, const std::string& name, const Values& values, const About& about = {});
// `axes` give the shape, the first of them that of rows.
Handle write_column(hid_t parent, const std::string& name, const Values& values, const std::vector<hid_t>& axes,
                    const About& about = {});
void write_scalar(hid_t parent, const std::string& name, const Attribute& value, const About& about = {});
template <class T>
std::vector<T> read(hid_t dataset);  // std::int64_t, float, double or std::string; a scalar gives one element

void write_attribute(hid_t object, const std::string& name, const Attribute& value);  // replaces one of that name
void write_attribute(hid_t object, const std::string& name, const Values& values);
std::optional<Attribute> read_attribute(hid_t object, const std::string& name);
Attributes read_attributes(hid_t group);  // the scalar ones, in order of creation where the file tracks it
// Attributes of a group, of any length: texts beyond 64 KB become datasets of the same name. Reading merges both, except `but`.
void write_properties(hid_t group, const Attributes& properties);
Attributes read_properties(hid_t group, std::span<const std::string_view> but);

}  // namespace palimpsest::hdf5
