#include "store/hdf5.h"

#include <fmt/format.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

namespace palimpsest::hdf5 {
namespace {

constexpr std::size_t chunk_limit = std::size_t{64} * 1024;  // bytes; wide rows get fewer than 1024 a chunk
constexpr hsize_t chunk_rows = 1024, text_chunk_rows = 64;
constexpr unsigned deflate_level = 4;
constexpr std::size_t long_text = std::size_t{60} * 1024;  // some writers and readers refuse attributes beyond 64 KB
constexpr std::size_t memory_growth = std::size_t{256} * 1024;

std::recursive_mutex& library_mutex() {
    static std::recursive_mutex mutex;
    return mutex;
}

// The innermost entry of the library's error stack is the reason; the others say who called whom.
std::string reason() {
    std::string text;
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_DOWNWARD,
        [](unsigned, const H5E_error2_t* entry, void* result) -> herr_t {
            if (entry->desc != nullptr && *entry->desc != '\0') *static_cast<std::string*>(result) = entry->desc;
            return 0;
        },
        &text);
    H5Eclear2(H5E_DEFAULT);
    return text.empty() ? "no reason given" : text;
}

// For the library's iterations over links and attributes.
constexpr auto add_name = [](hid_t, const char* name, const auto*, void* names) -> herr_t {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
};

[[noreturn]] void raise(const std::string& what) { throw Failure(fmt::format("cannot {}: {}", what, reason())); }

Handle property_list(hid_t kind) { return Handle(H5Pcreate(kind), H5Pclose, "create property list"); }

// How objects are created: in an order that can be told, without times, so that equal files have equal bytes.
Handle creation_list(hid_t kind, bool has_links) {
    constexpr unsigned tracked = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    Handle list = property_list(kind);
    if (has_links) check(H5Pset_link_creation_order(list, tracked), "track creation order");
    check(H5Pset_attr_creation_order(list, tracked), "track creation order");
    check(H5Pset_obj_track_times(list, false), "switch off object times");
    return list;
}

// What tells the order in which the links, or the attributes, of a group were created; their names where it was not kept.
H5_index_t index_of(hid_t group, herr_t (*order_kept)(hid_t, unsigned*)) {
    const Handle creation(H5Gget_create_plist(group), H5Pclose, "read group properties");
    unsigned order = 0;
    check(order_kept(creation, &order), "read creation order");
    return (order & H5P_CRT_ORDER_TRACKED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
}

Handle text_type() {
    Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "copy text type");
    check(H5Tset_size(type, H5T_VARIABLE), "set text size");
    check(H5Tset_cset(type, H5T_CSET_UTF8), "set text encoding");
    return type;
}

// T as it stands in a file, or in this process.
template <class T>
Handle type_of(bool in_file) {
    const auto copy = [&](hid_t file, hid_t memory) { return Handle(H5Tcopy(in_file ? file : memory), H5Tclose, "copy type"); };
    if constexpr (std::is_same_v<T, std::int8_t>) return copy(H5T_STD_I8LE, H5T_NATIVE_INT8);
    if constexpr (std::is_same_v<T, std::uint8_t>) return copy(H5T_STD_U8LE, H5T_NATIVE_UINT8);
    if constexpr (std::is_same_v<T, std::int64_t>) return copy(H5T_STD_I64LE, H5T_NATIVE_INT64);
    if constexpr (std::is_same_v<T, float>) return copy(H5T_IEEE_F32LE, H5T_NATIVE_FLOAT);
    if constexpr (std::is_same_v<T, double>) return copy(H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE);
    return text_type();
}

Handle dataspace(hid_t dataset) { return Handle(H5Dget_space(dataset), H5Sclose, "read dataspace"); }

Handle scalar_space() { return Handle(H5Screate(H5S_SCALAR), H5Sclose, "create dataspace"); }

Handle simple_space(const std::vector<hsize_t>& size, const std::vector<hsize_t>& limit) {
    return Handle(H5Screate_simple(static_cast<int>(size.size()), size.data(), limit.data()), H5Sclose, "create dataspace");
}

// bounds earliest..1.8: superblock 0 or 2, which every reader in the field opens.
Handle access_list() {
    Handle list = property_list(H5P_FILE_ACCESS);
    check(H5Pset_libver_bounds(list, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18), "set format bounds");
    check(H5Pset_fapl_core(list, memory_growth, false), "choose the memory driver");
    return list;
}

// The library takes two open files of one name for one file.
std::string memory_name() {
    static std::atomic<std::uint64_t> count{0};
    return fmt::format("memory-{}", count++);
}

bool has_attribute(hid_t object, const std::string& name) {
    const htri_t found = H5Aexists(object, name.c_str());
    check(found, fmt::format("look for attribute '{}'", name));
    return found > 0;
}

// Hands `write` the values as the library takes them: texts by their addresses.
template <class T, class F>
void hand_over(std::span<const T> values, const F& write) {
    if constexpr (std::is_same_v<T, std::string>) {
        std::vector<const char*> pointers;
        for (const std::string& text : values) pointers.push_back(text.c_str());
        write(pointers.data());
    } else {
        write(values.data());
    }
}

template <class T>
void write_attribute(hid_t object, const std::string& name, hid_t space, std::span<const T> values) {
    if (has_attribute(object, name)) check(H5Adelete(object, name.c_str()), fmt::format("replace attribute '{}'", name));
    const Handle attribute(H5Acreate2(object, name.c_str(), type_of<T>(true), space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                           fmt::format("create attribute '{}'", name));
    hand_over(values, [&](const void* data) {
        check(H5Awrite(attribute, type_of<T>(false), data), fmt::format("write attribute '{}'", name));
    });
}

template <class T>
std::vector<T> read_all(hid_t dataset, hid_t memory_type) {
    const Handle space = dataspace(dataset);
    const hssize_t elements = H5Sget_simple_extent_npoints(space);
    if (elements < 0) raise("read the size of a dataset");
    std::vector<T> values(static_cast<std::size_t>(elements));
    if (elements > 0) check(H5Dread(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "read dataset");
    return values;
}

// The library's texts are C strings that it allocated.
std::vector<std::string> take_texts(const std::vector<char*>& pointers) {
    std::vector<std::string> texts;
    texts.reserve(pointers.size());
    for (const char* pointer : pointers) texts.emplace_back(pointer == nullptr ? "" : pointer);
    for (char* pointer : pointers) H5free_memory(pointer);
    return texts;
}

// What readers take for "not measured"; 255 would be no better a mark than 0 in a column of flags, so unsigned numbers and texts
// have none.
template <class T>
std::optional<T> mark_of() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) return T{-1};
    return std::nullopt;
}

template <class T>
Handle write_dataset(hid_t parent, const std::string& name, std::span<const T> values, const std::vector<hsize_t>& size,
                     const About& about) {
    constexpr bool is_text = std::is_same_v<T, std::string>;
    const Handle stored = type_of<T>(true);
    const Handle creation = creation_list(H5P_DATASET_CREATE, false);
    const std::optional<T> mark = mark_of<T>();
    if (!is_text && mark) check(H5Pset_fill_value(creation, type_of<T>(false), &*mark), "set fill value");

    Handle space = scalar_space();
    if (!size.empty()) {
        std::vector<hsize_t> limit = size;
        if (about.grows || size[0] == 0) {
            std::vector<hsize_t> chunk = size;
            std::size_t row = H5Tget_size(stored);
            for (std::size_t axis = 1; axis < chunk.size(); ++axis) row *= chunk[axis] = std::max<hsize_t>(chunk[axis], 1);
            chunk[0] = std::clamp<hsize_t>(chunk_limit / row, 1, is_text ? text_chunk_rows : chunk_rows);
            check(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()), "set chunk");
            if (!is_text) {  // texts lie outside of the chunks
                check(H5Pset_shuffle(creation), "set shuffle");
                check(H5Pset_deflate(creation, deflate_level), "set deflate");
            }
            limit[0] = H5S_UNLIMITED;
        }
        space = simple_space(size, limit);
    }
    const hsize_t elements = std::accumulate(size.begin(), size.end(), hsize_t{1}, std::multiplies<>());
    if (values.size() != elements) throw Failure(fmt::format("{} values for the {} of '{}'", values.size(), elements, name));
    Handle dataset(H5Dcreate2(parent, name.c_str(), stored, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose,
                   fmt::format("create dataset '{}'", name));
    if (!about.units.empty()) hdf5::write_attribute(dataset, "units", about.units);
    if (!about.long_name.empty()) hdf5::write_attribute(dataset, "long_name", about.long_name);
    if (about.gaps && mark) write_attribute<T>(dataset, "_FillValue", scalar_space(), {&*mark, 1});
    hand_over(values, [&](const void* data) {
        if (elements > 0) check(H5Dwrite(dataset, type_of<T>(false), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), "write " + name);
    });
    return dataset;
}

Handle write_values(hid_t parent, const std::string& name, const Values& values, const std::vector<hsize_t>& size,
                    const About& about) {
    return std::visit([&](const auto& typed) { return write_dataset(parent, name, typed, size, about); }, values);
}

}  // namespace

Guard::Guard() : lock_(library_mutex()) {
    // The library prints its errors by default, and aborts when header and library differ: `doctor` tells that instead.
    static const int no_abort = ::setenv("HDF5_DISABLE_VERSION_CHECK", "2", 0);
    static thread_local const herr_t quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    static_cast<void>(no_abort);
    static_cast<void>(quiet);
}

Handle::Handle(hid_t id, Closer closer, const std::string& what)
    : id_(new hid_t(id), [closer](const hid_t* own) {
          const Guard guard;
          if (*own >= 0) closer(*own);
          delete own;
      }) {
    if (id < 0) raise(what);
}

void check(herr_t status, const std::string& what) {
    if (status < 0) raise(what);
}

Handle create_file() {
    const Handle creation = creation_list(H5P_FILE_CREATE, true);
    return Handle(H5Fcreate(memory_name().c_str(), H5F_ACC_TRUNC, creation, access_list()), H5Fclose, "create file");
}

Handle open_file(const std::string& image, Access mode) {
    if (image.empty()) throw Failure("the file is empty");
    const Handle access = access_list();
    // The library copies the image; its signature merely lacks the const.
    check(H5Pset_file_image(access, const_cast<char*>(image.data()), image.size()), "take file image");
    return Handle(H5Fopen(memory_name().c_str(), mode == Access::write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access), H5Fclose,
                  "open file");
}

std::string image(hid_t file) {
    check(H5Fflush(file, H5F_SCOPE_GLOBAL), "flush file");
    const ssize_t size = H5Fget_file_image(file, nullptr, 0);
    if (size < 0) raise("measure file image");
    std::string bytes(static_cast<std::size_t>(size), '\0');
    if (H5Fget_file_image(file, bytes.data(), bytes.size()) != size) raise("take file image");
    return bytes;
}

Handle create_group(hid_t parent, const std::string& name) {
    const Handle creation = creation_list(H5P_GROUP_CREATE, true);
    return Handle(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Gclose,
                  fmt::format("create group '{}'", name));
}

Handle open_group(hid_t parent, const std::string& name) {
    return Handle(H5Gopen2(parent, name.c_str(), H5P_DEFAULT), H5Gclose, fmt::format("open group '{}'", name));
}

Handle open_dataset(hid_t parent, const std::string& name) {
    return Handle(H5Dopen2(parent, name.c_str(), H5P_DEFAULT), H5Dclose, fmt::format("open dataset '{}'", name));
}

bool exists(hid_t parent, const std::string& name) {
    const htri_t found = H5Lexists(parent, name.c_str(), H5P_DEFAULT);
    check(found, fmt::format("look for '{}'", name));
    return found > 0;
}

bool is_group(hid_t parent, const std::string& name) {
    const Handle object(H5Oopen(parent, name.c_str(), H5P_DEFAULT), H5Oclose, fmt::format("open '{}'", name));
    return H5Iget_type(object) == H5I_GROUP;
}

std::vector<std::string> children(hid_t group) {
    std::vector<std::string> names;
    check(H5Literate(group, index_of(group, H5Pget_link_creation_order), H5_ITER_INC, nullptr, add_name, &names), "list a group");
    return names;
}

std::vector<hsize_t> shape(hid_t dataset) {
    const Handle space = dataspace(dataset);
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 0) raise("read the shape of a dataset");
    std::vector<hsize_t> size(static_cast<std::size_t>(rank));
    check(H5Sget_simple_extent_dims(space, size.data(), nullptr), "read the shape of a dataset");
    return size;
}

Handle write_axis(hid_t parent, const std::string& name, const Values& values, const About& about) {
    const std::size_t rows = std::visit([](const auto& typed) { return typed.size(); }, values);
    Handle dataset = write_values(parent, name, values, {rows}, about);
    check(H5DSset_scale(dataset, name.c_str()), fmt::format("make '{}' a dimension scale", name));
    return dataset;
}

Handle write_column(hid_t parent, const std::string& name, const Values& values, const std::vector<hid_t>& axes,
                    const About& about) {
    std::vector<hsize_t> size;
    for (const hid_t axis : axes) size.push_back(shape(axis)[0]);
    Handle dataset = write_values(parent, name, values, size, about);
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
        check(H5DSattach_scale(dataset, axes[axis], static_cast<unsigned>(axis)), "attach dimension scale");
    return dataset;
}

void write_scalar(hid_t parent, const std::string& name, const Attribute& value, const About& about) {
    std::visit([&](const auto& typed) { write_values(parent, name, std::span(&typed, 1), {}, about); }, value);
}

template <class T>
std::vector<T> read(hid_t dataset) {
    if constexpr (std::is_same_v<T, std::string>) return take_texts(read_all<char*>(dataset, text_type()));
    else return read_all<T>(dataset, type_of<T>(false));
}

template std::vector<std::int64_t> read(hid_t);
template std::vector<float> read(hid_t);
template std::vector<double> read(hid_t);
template std::vector<std::string> read(hid_t);

void write_attribute(hid_t object, const std::string& name, const Attribute& value) {
    std::visit([&]<class T>(const T& typed) { write_attribute<T>(object, name, scalar_space(), {&typed, 1}); }, value);
}

void write_attribute(hid_t object, const std::string& name, const Values& values) {
    std::visit([&](const auto& typed) { write_attribute(object, name, simple_space({typed.size()}, {typed.size()}), typed); },
               values);
}

std::optional<Attribute> read_attribute(hid_t object, const std::string& name) {
    if (!has_attribute(object, name)) return std::nullopt;
    const std::string what = fmt::format("read attribute '{}'", name);
    const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, what);
    const Handle space(H5Aget_space(attribute), H5Sclose, what), type(H5Aget_type(attribute), H5Tclose, what);
    if (H5Sget_simple_extent_npoints(space) != 1) return std::nullopt;
    const auto read_as = [&]<class T>(T value, hid_t memory_type) {
        check(H5Aread(attribute, memory_type, &value), what);
        return value;
    };
    if (H5Tget_class(type) == H5T_INTEGER) return read_as(std::int64_t{0}, H5T_NATIVE_INT64);
    if (H5Tget_class(type) == H5T_FLOAT) return read_as(0.0, H5T_NATIVE_DOUBLE);
    if (H5Tis_variable_str(type) <= 0) return std::nullopt;
    return take_texts({read_as(static_cast<char*>(nullptr), text_type())})[0];
}

Attributes read_attributes(hid_t group) {
    std::vector<std::string> names;
    check(H5Aiterate2(group, index_of(group, H5Pget_attr_creation_order), H5_ITER_INC, nullptr, add_name, &names),
          "list attributes");
    Attributes attributes;
    for (const std::string& name : names) {
        if (std::optional<Attribute> value = read_attribute(group, name)) attributes.emplace_back(name, std::move(*value));
    }
    return attributes;
}

void write_properties(hid_t group, const Attributes& properties) {
    for (const auto& [name, value] : properties) {
        const auto* text = std::get_if<std::string>(&value);
        if (text != nullptr && text->size() > long_text) {
            write_scalar(group, name, *text);
        } else {
            write_attribute(group, name, value);
        }
    }
}

Attributes read_properties(hid_t group, std::span<const std::string_view> but) {
    Attributes properties = read_attributes(group);
    for (const std::string& name : children(group)) {
        if (std::find(but.begin(), but.end(), name) != but.end() || is_group(group, name)) continue;
        const Handle dataset = open_dataset(group, name);
        if (shape(dataset).empty()) properties.emplace_back(name, read<std::string>(dataset)[0]);
    }
    return properties;
}

}  // namespace palimpsest::hdf5
