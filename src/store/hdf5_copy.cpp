// Copying a whole file, object by object, rather than H5Ocopy: that keeps the old filters, and leaves the references by which
// dimension scales are attached pointing nowhere.
#include "store/hdf5.h"

#include <fmt/format.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <array>

namespace palimpsest::hdf5 {
namespace {

constexpr unsigned deflate_level = 4;
// Attributes that the library keeps on scales and on what they are attached to; written anew in the copy.
constexpr std::array<std::string_view, 4> scale_attributes = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST"};

struct Attachment {
    std::string dataset, scale;
    unsigned axis = 0;
};

// Values as the library reads them into memory. Texts in it belong to the library.
class Buffer {
public:
    Buffer(hid_t type, hid_t space, std::size_t elements) : type_(type), space_(space), bytes_(elements * H5Tget_size(type)) {}
    ~Buffer() {
        if (H5Tdetect_class(type_, H5T_STRING) > 0 && !bytes_.empty()) H5Dvlen_reclaim(type_, space_, H5P_DEFAULT, bytes_.data());
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    char* data() { return bytes_.data(); }

private:
    hid_t type_, space_;
    std::vector<char> bytes_;
};

class Copier {
public:
    Copier(hid_t target, const CopyOptions& options) : target_(target), options_(options) {}

    void copy(hid_t source) {
        copy_group(source, target_, "/");
        for (const auto& [path, name] : scales_) make_scale(open_dataset(target_, path), name);
        for (const Attachment& a : attachments_)
            attach_scale(open_dataset(target_, a.dataset), a.axis, open_dataset(target_, a.scale));
    }

private:
    bool skipped(const std::string& path) const {
        return std::find(options_.skip.begin(), options_.skip.end(), path) != options_.skip.end();
    }

    void copy_group(hid_t source, hid_t target, const std::string& path) {
        copy_attributes(source, target, path);
        for (const std::string& name : children(source)) {
            const std::string child = path + name;
            if (skipped(child)) continue;
            if (is_group(source, name)) {
                copy_group(open_group(source, name), create_group(target, name), child + "/");
            } else {
                copy_dataset(open_dataset(source, name), target, name, child);
            }
        }
    }

    void copy_attributes(hid_t source, hid_t target, const std::string& path) {
        for (const std::string& name : attribute_names(source)) {
            const bool of_scale = std::find(scale_attributes.begin(), scale_attributes.end(), name) != scale_attributes.end();
            if (of_scale || skipped(path + "@" + name)) continue;
            const std::string what = fmt::format("copy attribute '{}' of {}", name, path);
            const Handle from(H5Aopen(source, name.c_str(), H5P_DEFAULT), H5Aclose, what);
            const Handle type(H5Aget_type(from), H5Tclose, what), space(H5Aget_space(from), H5Sclose, what);
            const Handle memory(H5Tget_native_type(type, H5T_DIR_DEFAULT), H5Tclose, what);
            Buffer values(memory, space, static_cast<std::size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space), 0)));
            check(H5Aread(from, memory, values.data()), what);
            const Handle to(H5Acreate2(target, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
            check(H5Awrite(to, memory, values.data()), what);
        }
    }

    static std::vector<std::string> attribute_names(hid_t object) {
        std::vector<std::string> names;
        const auto add = [](hid_t, const char* name, const H5A_info_t*, void* result) -> herr_t {
            static_cast<std::vector<std::string>*>(result)->emplace_back(name);
            return 0;
        };
        // Objects that another tool added may not track the order.
        for (const H5_index_t index : {H5_INDEX_CRT_ORDER, H5_INDEX_NAME}) {
            names.clear();
            hsize_t position = 0;
            if (H5Aiterate2(object, index, H5_ITER_INC, &position, add, &names) >= 0) return names;
        }
        throw Failure("cannot list attributes");
    }

    void copy_dataset(hid_t source, hid_t target_group, const std::string& name, const std::string& path) {
        const std::string what = fmt::format("copy dataset {}", path);
        std::vector<hsize_t> size = shape(source), limit = size;
        const std::vector<std::string> scales = note_scales(source, path, size.size());
        if (!size.empty()) {
            for (const auto& [scale, rows] : options_.rows) {
                if (scale == path || scale == scales[0]) size[0] = std::min(size[0], rows);
            }
        }

        const Handle type(H5Dget_type(source), H5Tclose, what), space(H5Dget_space(source), H5Sclose, what);
        const Handle memory(H5Tget_native_type(type, H5T_DIR_DEFAULT), H5Tclose, what);
        const Handle creation(H5Dget_create_plist(source), H5Pclose, what);
        const bool chunked = H5Pget_layout(creation) == H5D_CHUNKED;
        if (chunked) check(H5Premove_filter(creation, H5Z_FILTER_ALL), what);
        if (chunked && options_.compress && H5Tget_class(type) != H5T_STRING) {
            check(H5Pset_shuffle(creation), what);
            check(H5Pset_deflate(creation, deflate_level), what);
        }

        Handle target_space(H5Scopy(space), H5Sclose, what);
        if (!size.empty()) {
            check(H5Sget_simple_extent_dims(space, nullptr, limit.data()), what);
            check(H5Sset_extent_simple(target_space, static_cast<int>(size.size()), size.data(), limit.data()), what);
        }
        const Handle target(H5Dcreate2(target_group, name.c_str(), type, target_space, H5P_DEFAULT, creation, H5P_DEFAULT),
                            H5Dclose, what);

        const hssize_t elements = H5Sget_simple_extent_npoints(target_space);
        if (elements > 0) {
            if (!size.empty()) {
                const std::vector<hsize_t> start(size.size(), 0);
                check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr), what);
            }
            Buffer values(memory, target_space, static_cast<std::size_t>(elements));
            check(H5Dread(source, memory, target_space, space, H5P_DEFAULT, values.data()), what);
            check(H5Dwrite(target, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), what);
        }
        copy_attributes(source, target, path + "/");
    }

    // Remembers whether the dataset is a scale and what is attached to it. Returns the scale's path by axis, "" where there is
    // none.
    std::vector<std::string> note_scales(hid_t source, const std::string& path, std::size_t rank) {
        if (H5DSis_scale(source) > 0) {
            std::string name(256, '\0');
            const ssize_t length = H5DSget_scale_name(source, name.data(), name.size());
            name.resize(length < 0 ? 0 : static_cast<std::size_t>(std::min<ssize_t>(length, 255)));
            scales_.emplace_back(path, name);
        }
        std::vector<std::string> paths(std::max<std::size_t>(rank, 1));
        for (unsigned axis = 0; axis < rank; ++axis) {
            check(H5DSiterate_scales(
                      source, axis, nullptr,
                      [](hid_t, unsigned, hid_t scale, void* result) -> herr_t {
                          char name[512];
                          if (H5Iget_name(scale, name, sizeof name) > 0) *static_cast<std::string*>(result) = name;
                          return 0;
                      },
                      &paths[axis]),
                  "read dimension scales");
            if (!paths[axis].empty()) attachments_.push_back({path, paths[axis], axis});
        }
        return paths;
    }

    hid_t target_;
    const CopyOptions& options_;
    std::vector<std::pair<std::string, std::string>> scales_;
    std::vector<Attachment> attachments_;
};

}  // namespace

Handle copy_file(hid_t source, const CopyOptions& options) {
    const Guard guard;
    Handle target = create_file();
    // The root group of a file is addressed by the file itself, but only a group's handle lists attributes and children.
    const Handle from = open_group(source, "/"), to = open_group(target, "/");
    Copier(to, options).copy(from);
    return target;
}

}  // namespace palimpsest::hdf5
