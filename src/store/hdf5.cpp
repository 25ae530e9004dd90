#include "store/hdf5.h"

#include <fmt/format.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <utility>

namespace palimpsest::hdf5 {
namespace {

constexpr std::size_t chunk_limit = std::size_t{64} * 1024;  // bytes; wide rows get fewer than 1024 a chunk
constexpr hsize_t chunk_rows = 1024, text_chunk_rows = 64;
constexpr unsigned deflate_level = 4;
constexpr std::size_t long_text = std::size_t{60} * 1024;  // some writers and readers refuse attributes beyond 64 KB
constexpr std::size_t memory_growth = std::size_t{256} * 1024;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();  // marks what was not measured
constexpr std::int64_t minus_one = -1;                                     // likewise

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

Handle text_type() {
    Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "copy text type");
    check(H5Tset_size(type, H5T_VARIABLE), "set text size");
    check(H5Tset_cset(type, H5T_CSET_UTF8), "set text encoding");
    return type;
}

Handle file_type(Type type) {
    const auto copy = [](hid_t standard) { return Handle(H5Tcopy(standard), H5Tclose, "copy type"); };
    switch (type) {
        case Type::i1: return copy(H5T_STD_I8LE);
        case Type::u1: return copy(H5T_STD_U8LE);
        case Type::i8: return copy(H5T_STD_I64LE);
        case Type::f4: return copy(H5T_IEEE_F32LE);
        case Type::f8: return copy(H5T_IEEE_F64LE);
        case Type::text: break;
    }
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

void write_typed_attribute(hid_t object, const std::string& name, hid_t type, hid_t memory_type, hid_t space, const void* value) {
    remove_attribute(object, name);
    const Handle attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                           fmt::format("create attribute '{}'", name));
    check(H5Awrite(attribute, memory_type, value), fmt::format("write attribute '{}'", name));
}

void write_selected(hid_t dataset, hid_t memory_type, hsize_t first, std::size_t elements, const void* values) {
    const Guard guard;
    std::vector<hsize_t> size = shape(dataset);
    if (size.empty()) throw Failure("cannot write rows of a scalar");
    hsize_t row = 1;
    for (std::size_t axis = 1; axis < size.size(); ++axis) row *= size[axis];
    if (elements == 0) return;
    if (row == 0 || elements % row != 0) throw Failure(fmt::format("{} values do not fill rows of {}", elements, row));
    const hsize_t rows = elements / row;
    if (first + rows > size[0]) resize_rows(dataset, first + rows);
    std::vector<hsize_t> start(size.size(), 0), count = size;
    start[0] = first;
    count[0] = rows;
    const Handle memory = simple_space(count, count);
    const Handle file = dataspace(dataset);
    check(H5Sselect_hyperslab(file, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), "select rows");
    check(H5Dwrite(dataset, memory_type, memory, file, H5P_DEFAULT, values), "write rows");
}

template <class T>
std::vector<T> read_all(hid_t dataset, hid_t memory_type) {
    const Guard guard;
    const Handle space = dataspace(dataset);
    const hssize_t elements = H5Sget_simple_extent_npoints(space);
    if (elements < 0) raise("read the size of a dataset");
    std::vector<T> values(static_cast<std::size_t>(elements));
    if (elements > 0) check(H5Dread(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "read dataset");
    return values;
}

std::vector<const char*> pointers_to(std::span<const std::string> texts) {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    return pointers;
}

// The library's texts are C strings that it allocated.
std::vector<std::string> take_texts(const std::vector<char*>& pointers) {
    std::vector<std::string> texts;
    texts.reserve(pointers.size());
    for (const char* pointer : pointers) texts.emplace_back(pointer == nullptr ? "" : pointer);
    for (char* pointer : pointers) H5free_memory(pointer);
    return texts;
}

}  // namespace

Guard::Guard() : lock_(library_mutex()) {
    // The library prints its errors by default, and aborts when header and library differ: `doctor` tells that instead.
    static const int no_abort = ::setenv("HDF5_DISABLE_VERSION_CHECK", "2", 0);
    static thread_local const herr_t quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    static_cast<void>(no_abort);
    static_cast<void>(quiet);
}

Handle::Handle(hid_t id, Closer closer, const std::string& what) : id_(id), closer_(closer) {
    if (id < 0) raise(what);
}

Handle::Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), closer_(other.closer_) {}

Handle& Handle::operator=(Handle&& other) noexcept {
    if (this != &other) {
        close();
        id_ = std::exchange(other.id_, H5I_INVALID_HID);
        closer_ = other.closer_;
    }
    return *this;
}

Handle::~Handle() { close(); }

void Handle::close() noexcept {
    if (id_ < 0) return;
    const Guard guard;
    closer_(id_);
    id_ = H5I_INVALID_HID;
}

void check(herr_t status, const std::string& what) {
    if (status < 0) raise(what);
}

Handle create_file() {
    const Guard guard;
    const Handle creation = creation_list(H5P_FILE_CREATE, true);
    return Handle(H5Fcreate(memory_name().c_str(), H5F_ACC_TRUNC, creation, access_list()), H5Fclose, "create file");
}

Handle open_file(const std::string& image, Access mode) {
    const Guard guard;
    if (image.empty()) throw Failure("the file is empty");
    const Handle access = access_list();
    // The library copies the image; its signature merely lacks the const.
    check(H5Pset_file_image(access, const_cast<char*>(image.data()), image.size()), "take file image");
    return Handle(H5Fopen(memory_name().c_str(), mode == Access::write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access), H5Fclose,
                  "open file");
}

std::string image(hid_t file) {
    const Guard guard;
    check(H5Fflush(file, H5F_SCOPE_GLOBAL), "flush file");
    const ssize_t size = H5Fget_file_image(file, nullptr, 0);
    if (size < 0) raise("measure file image");
    std::string bytes(static_cast<std::size_t>(size), '\0');
    if (H5Fget_file_image(file, bytes.data(), bytes.size()) != size) raise("take file image");
    return bytes;
}

Handle create_group(hid_t parent, const std::string& name) {
    const Guard guard;
    const Handle creation = creation_list(H5P_GROUP_CREATE, true);
    return Handle(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Gclose,
                  fmt::format("create group '{}'", name));
}

void remove(hid_t parent, const std::string& name) {
    const Guard guard;
    check(H5Ldelete(parent, name.c_str(), H5P_DEFAULT), fmt::format("remove '{}'", name));
}

Handle open_group(hid_t parent, const std::string& name) {
    const Guard guard;
    return Handle(H5Gopen2(parent, name.c_str(), H5P_DEFAULT), H5Gclose, fmt::format("open group '{}'", name));
}

Handle open_dataset(hid_t parent, const std::string& name) {
    const Guard guard;
    return Handle(H5Dopen2(parent, name.c_str(), H5P_DEFAULT), H5Dclose, fmt::format("open dataset '{}'", name));
}

bool exists(hid_t parent, const std::string& name) {
    const Guard guard;
    const htri_t found = H5Lexists(parent, name.c_str(), H5P_DEFAULT);
    check(found, fmt::format("look for '{}'", name));
    return found > 0;
}

bool is_group(hid_t parent, const std::string& name) {
    const Guard guard;
    const Handle object(H5Oopen(parent, name.c_str(), H5P_DEFAULT), H5Oclose, fmt::format("open '{}'", name));
    return H5Iget_type(object) == H5I_GROUP;
}

std::vector<std::string> children(hid_t group) {
    const Guard guard;
    const Handle creation(H5Gget_create_plist(group), H5Pclose, "read group properties");
    unsigned order = 0;
    check(H5Pget_link_creation_order(creation, &order), "read creation order");
    const H5_index_t index = (order & H5P_CRT_ORDER_TRACKED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
    H5G_info_t info;
    check(H5Gget_info(group, &info), "read group");
    std::vector<std::string> names;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
        const ssize_t length = H5Lget_name_by_idx(group, ".", index, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
        std::string name(static_cast<std::size_t>(std::max<ssize_t>(length, 0)), '\0');
        if (H5Lget_name_by_idx(group, ".", index, H5_ITER_INC, i, name.data(), name.size() + 1, H5P_DEFAULT) < 0)
            raise("read a name in a group");
        names.push_back(std::move(name));
    }
    return names;
}

Handle create_dataset(hid_t parent, const std::string& name, Type type, const Shape& shape, const std::string& units,
                      const std::string& long_name) {
    const Guard guard;
    const Handle stored = file_type(type);
    const Handle creation = creation_list(H5P_DATASET_CREATE, false);
    // 255 would be no better a mark than 0 in a column of flags, so unsigned columns have no fill.
    if (type == Type::f4 || type == Type::f8)
        check(H5Pset_fill_value(creation, H5T_NATIVE_DOUBLE, &not_a_number), "set fill value");
    if (type == Type::i1 || type == Type::i8) check(H5Pset_fill_value(creation, H5T_NATIVE_INT64, &minus_one), "set fill value");

    Handle space = scalar_space();
    if (!shape.size.empty()) {
        std::vector<hsize_t> limit = shape.size;
        if (shape.extensible || shape.size[0] == 0) {
            std::vector<hsize_t> chunk = shape.size;
            std::size_t row = H5Tget_size(stored);
            for (std::size_t axis = 1; axis < chunk.size(); ++axis) row *= chunk[axis] = std::max<hsize_t>(chunk[axis], 1);
            chunk[0] = std::clamp<hsize_t>(chunk_limit / row, 1, type == Type::text ? text_chunk_rows : chunk_rows);
            check(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()), "set chunk");
            if (type != Type::text) {  // texts lie outside of the chunks
                check(H5Pset_shuffle(creation), "set shuffle");
                check(H5Pset_deflate(creation, deflate_level), "set deflate");
            }
            limit[0] = H5S_UNLIMITED;
        }
        space = simple_space(shape.size, limit);
    }
    Handle dataset(H5Dcreate2(parent, name.c_str(), stored, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose,
                   fmt::format("create dataset '{}'", name));
    if (!units.empty()) write_attribute(dataset, "units", units);
    if (!long_name.empty()) write_attribute(dataset, "long_name", long_name);
    return dataset;
}

void mark_fill(hid_t dataset) {
    const Guard guard;
    const Handle type(H5Dget_type(dataset), H5Tclose, "read type");
    if (H5Tget_class(type) == H5T_FLOAT) {
        write_typed_attribute(dataset, "_FillValue", type, H5T_NATIVE_DOUBLE, scalar_space(), &not_a_number);
    } else if (H5Tget_class(type) == H5T_INTEGER) {
        write_typed_attribute(dataset, "_FillValue", type, H5T_NATIVE_INT64, scalar_space(), &minus_one);
    }
}

std::vector<hsize_t> shape(hid_t dataset) {
    const Guard guard;
    const Handle space = dataspace(dataset);
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 0) raise("read the shape of a dataset");
    std::vector<hsize_t> size(static_cast<std::size_t>(rank));
    check(H5Sget_simple_extent_dims(space, size.data(), nullptr), "read the shape of a dataset");
    return size;
}

void resize_rows(hid_t dataset, hsize_t rows) {
    const Guard guard;
    std::vector<hsize_t> size = shape(dataset);
    if (size.empty()) throw Failure("cannot resize a scalar");
    size[0] = rows;
    check(H5Dset_extent(dataset, size.data()), "resize dataset");
}

void write_rows(hid_t dataset, hsize_t first, std::span<const std::int64_t> values) {
    write_selected(dataset, H5T_NATIVE_INT64, first, values.size(), values.data());
}
void write_rows(hid_t dataset, hsize_t first, std::span<const float> values) {
    write_selected(dataset, H5T_NATIVE_FLOAT, first, values.size(), values.data());
}
void write_rows(hid_t dataset, hsize_t first, std::span<const double> values) {
    write_selected(dataset, H5T_NATIVE_DOUBLE, first, values.size(), values.data());
}
void write_rows(hid_t dataset, hsize_t first, std::span<const std::string> values) {
    const Guard guard;
    const std::vector<const char*> pointers = pointers_to(values);
    write_selected(dataset, text_type(), first, pointers.size(), pointers.data());
}

void create_number(hid_t parent, const std::string& name, double value, const std::string& units) {
    const Guard guard;
    const Handle dataset = create_dataset(parent, name, Type::f8, {}, units);
    check(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value), "write number");
}

void create_text(hid_t parent, const std::string& name, const std::string& text, const std::string& long_name) {
    const Guard guard;
    const Handle dataset = create_dataset(parent, name, Type::text, {}, "", long_name);
    const char* pointer = text.c_str();
    check(H5Dwrite(dataset, text_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, &pointer), "write text");
}

std::vector<std::int64_t> read_integers(hid_t dataset) { return read_all<std::int64_t>(dataset, H5T_NATIVE_INT64); }
std::vector<float> read_floats(hid_t dataset) { return read_all<float>(dataset, H5T_NATIVE_FLOAT); }
std::vector<double> read_doubles(hid_t dataset) { return read_all<double>(dataset, H5T_NATIVE_DOUBLE); }

std::vector<std::string> read_texts(hid_t dataset) {
    const Guard guard;
    return take_texts(read_all<char*>(dataset, text_type()));
}

void write_attribute(hid_t object, const std::string& name, const Attribute& value) {
    const Guard guard;
    const Handle space = scalar_space();
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        write_typed_attribute(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, space, integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
        write_typed_attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, space, number);
    } else {
        const Handle type = text_type();
        const char* pointer = std::get<std::string>(value).c_str();
        write_typed_attribute(object, name, type, type, space, &pointer);
    }
}

void write_attribute(hid_t object, const std::string& name, std::span<const std::string> values) {
    const Guard guard;
    const std::vector<const char*> pointers = pointers_to(values);
    const Handle type = text_type();
    write_typed_attribute(object, name, type, type, simple_space({values.size()}, {values.size()}), pointers.data());
}

void write_attribute(hid_t object, const std::string& name, std::span<const std::int8_t> values) {
    const Guard guard;
    write_typed_attribute(object, name, H5T_STD_I8LE, H5T_NATIVE_INT8, simple_space({values.size()}, {values.size()}),
                          values.data());
}

void remove_attribute(hid_t object, const std::string& name) {
    const Guard guard;
    if (has_attribute(object, name)) check(H5Adelete(object, name.c_str()), fmt::format("remove attribute '{}'", name));
}

std::optional<Attribute> read_attribute(hid_t object, const std::string& name) {
    const Guard guard;
    if (!has_attribute(object, name)) return std::nullopt;
    const std::string what = fmt::format("read attribute '{}'", name);
    const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, what);
    const Handle space(H5Aget_space(attribute), H5Sclose, what), type(H5Aget_type(attribute), H5Tclose, what);
    if (H5Sget_simple_extent_npoints(space) != 1) return std::nullopt;
    if (H5Tget_class(type) == H5T_INTEGER) {
        std::int64_t value = 0;
        check(H5Aread(attribute, H5T_NATIVE_INT64, &value), what);
        return value;
    }
    if (H5Tget_class(type) == H5T_FLOAT) {
        double value = 0;
        check(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value), what);
        return value;
    }
    if (H5Tis_variable_str(type) <= 0) return std::nullopt;
    std::vector<char*> pointer(1);
    check(H5Aread(attribute, text_type(), pointer.data()), what);
    return take_texts(pointer)[0];
}

Attributes read_attributes(hid_t object) {
    const Guard guard;
    std::vector<std::string> names;
    hsize_t position = 0;
    check(H5Aiterate2(
              object, H5_INDEX_NAME, H5_ITER_NATIVE, &position,
              [](hid_t, const char* name, const H5A_info_t*, void* result) -> herr_t {
                  static_cast<std::vector<std::string>*>(result)->emplace_back(name);
                  return 0;
              },
              &names),
          "list attributes");
    Attributes attributes;
    for (const std::string& name : names) {
        if (std::optional<Attribute> value = read_attribute(object, name)) attributes.emplace_back(name, std::move(*value));
    }
    return attributes;
}

void write_properties(hid_t group, const Attributes& properties) {
    for (const auto& [name, value] : properties) {
        const auto* text = std::get_if<std::string>(&value);
        if (text != nullptr && text->size() > long_text) {
            create_text(group, name, *text);
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
        if (shape(dataset).empty()) properties.emplace_back(name, read_texts(dataset)[0]);
    }
    return properties;
}

void make_scale(hid_t dataset, const std::string& name) {
    const Guard guard;
    check(H5DSset_scale(dataset, name.c_str()), fmt::format("make '{}' a dimension scale", name));
}

void attach_scale(hid_t dataset, unsigned axis, hid_t scale) {
    const Guard guard;
    check(H5DSattach_scale(dataset, scale, axis), "attach dimension scale");
}

bool is_attached(hid_t dataset, unsigned axis, hid_t scale) {
    const Guard guard;
    if (shape(dataset).size() <= axis || H5DSis_scale(dataset) > 0) return false;  // the library refuses to look at these
    const htri_t attached = H5DSis_attached(dataset, scale, axis);
    check(attached, "look for a dimension scale");
    return attached > 0;
}

}  // namespace palimpsest::hdf5
