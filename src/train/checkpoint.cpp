#include "train/checkpoint.h"

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>
#include <string_view>

namespace palimpsest::train {
namespace {

constexpr std::string_view magic = "palimpsest-checkpoint ";
constexpr std::int64_t format_version = 2, oldest_format = 1;
constexpr std::string_view prefix = "step-", suffix = ".ckpt";

struct TypeName {
    at::ScalarType type;
    std::string_view name;
};
constexpr std::array<TypeName, 3> types{{{at::kFloat, "float"}, {at::kDouble, "double"}, {at::kLong, "long"}}};

std::string_view name_of(at::ScalarType type) {
    for (const TypeName& known : types)
        if (known.type == type) return known.name;
    PALIMPSEST_ASSERT(false, "arrays of type {} are not stored", at::toString(type));
}

std::string describe(const at::Tensor& tensor) {
    return fmt::format("{} [{}]", name_of(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

// A cursor over the header; every complaint names the file.
class Header {
public:
    Header(const std::string& path, std::string_view text) : path_(path), text_(text) {}

    [[noreturn]] void damaged(const std::string& what) const {
        fail(ExitCode::run_failed, "checkpoint {} is damaged: {}", path_, what);
    }
    std::string_view line() {
        const std::size_t end = text_.find('\n', at_);
        if (end == std::string_view::npos) damaged("its header has no end");
        const std::string_view out = text_.substr(at_, end - at_);
        at_ = end + 1;
        return out;
    }
    std::int64_t number(std::string_view digits) const {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error != std::errc{} || end != digits.data() + digits.size() || value < 0)
            damaged(fmt::format("'{}' is not a number", digits));
        return value;
    }
    std::size_t position() const { return at_; }

private:
    const std::string& path_;
    std::string_view text_;
    std::size_t at_ = 0;
};

std::pair<std::string_view, std::string_view> split_at_blank(std::string_view text) {
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return {text, {}};
    return {text.substr(0, blank), text.substr(blank + 1)};
}

at::Tensor empty_array(const Header& header, std::string_view type, std::string_view shape) {
    std::vector<std::int64_t> sizes;
    while (!shape.empty()) {
        const std::size_t comma = std::min(shape.find(','), shape.size());
        sizes.push_back(header.number(shape.substr(0, comma)));
        shape.remove_prefix(std::min(comma + 1, shape.size()));
    }
    for (const TypeName& known : types)
        if (known.name == type) return at::empty(sizes, known.type);
    header.damaged(fmt::format("'{}' is not a type", type));
}

}  // namespace

const std::string& Checkpoint::fact(const std::string& key) const {
    static const std::string none;
    for (const auto& [name, text] : facts)
        if (name == key) return text;
    return none;
}

const at::Tensor* Checkpoint::find(const std::string& name) const {
    for (const auto& [key, tensor] : arrays)
        if (key == name) return &tensor;
    return nullptr;
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
    std::string header = fmt::format("{}{}\nstep {}\n", magic, format_version, checkpoint.step);
    for (const auto& [key, text] : checkpoint.facts) {
        PALIMPSEST_ASSERT(key.find_first_of(" \n") == std::string::npos && text.find('\n') == std::string::npos, "fact {} = {}",
                          key, text);
        header += fmt::format("fact {} {}\n", key, text);
    }
    for (const auto& [name, tensor] : checkpoint.arrays) {
        PALIMPSEST_ASSERT(tensor.is_cpu() && tensor.is_contiguous(), "array {}", name);
        header += fmt::format("array {} {} {}\n", name, name_of(tensor.scalar_type()), fmt::join(tensor.sizes(), ","));
    }
    header += "end\n";

    AtomicFile file(path);
    file.write(header);
    std::uint64_t hash = fnv1a(header);
    for (const auto& [name, tensor] : checkpoint.arrays) {
        const std::size_t bytes = tensor.nbytes();
        file.write(tensor.data_ptr(), bytes);
        hash = fnv1a(tensor.data_ptr(), bytes, hash);
    }
    std::array<std::uint8_t, 8> sum{};
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<std::uint8_t>(hash >> (8 * i));
    file.write(sum.data(), sum.size());
    file.commit();
}

Checkpoint read_checkpoint(const std::string& path) {
    const std::string content = read_file(path);
    Header header(path, content);
    const std::string_view first = header.line();
    if (!first.starts_with(magic)) header.damaged("it does not begin with 'palimpsest-checkpoint'");
    const std::int64_t format = header.number(first.substr(magic.size()));
    if (format < oldest_format || format > format_version)
        fail(ExitCode::usage,
             "checkpoint {} was written in format {}; this program reads formats {} to {}. Go on with a program that reads it, or "
             "move "
             "the file away: then the run goes on from an older one, or begins anew",
             path, format, oldest_format, format_version);
    if (content.size() < header.position() + 8) header.damaged("it ends too early");
    std::uint64_t stored = 0;
    for (std::size_t i = 0; i < 8; ++i)
        stored |= static_cast<std::uint64_t>(static_cast<unsigned char>(content[content.size() - 8 + i])) << (8 * i);
    if (fnv1a(std::string_view(content).substr(0, content.size() - 8)) != stored) header.damaged("its checksum is wrong");

    Checkpoint out;
    out.format = format;
    for (std::string_view line = header.line(); line != "end"; line = header.line()) {
        const auto [word, rest] = split_at_blank(line);
        const auto [name, text] = split_at_blank(rest);
        if (word == "step") {
            out.step = header.number(rest);
        } else if (word == "fact") {
            out.facts.emplace_back(name, text);
        } else if (word == "array") {
            const auto [type, shape] = split_at_blank(text);
            out.arrays.emplace_back(name, empty_array(header, type, shape));
        } else {
            header.damaged(fmt::format("'{}' is no line of a header", line));
        }
    }
    std::size_t at = header.position();
    for (auto& [name, tensor] : out.arrays) {
        if (content.size() - 8 - at < tensor.nbytes()) header.damaged(fmt::format("array '{}' ends too early", name));
        std::memcpy(tensor.data_ptr(), content.data() + at, tensor.nbytes());
        at += tensor.nbytes();
    }
    if (at + 8 != content.size()) header.damaged("it is longer than its header says");
    return out;
}

std::vector<std::string> differences(const Checkpoint& checkpoint,
                                     const std::vector<std::pair<std::string, at::Tensor>>& expected) {
    std::vector<std::string> out;
    std::set<std::string> names, prefixes;
    for (const auto& [name, tensor] : expected) {
        names.insert(name);
        prefixes.insert(name.substr(0, name.find('/')));
        const at::Tensor* stored = checkpoint.find(name);
        if (!stored) {
            out.push_back(fmt::format("'{}' is not in the checkpoint; expected {}", name, describe(tensor)));
        } else if (stored->sizes() != tensor.sizes() || stored->scalar_type() != tensor.scalar_type()) {
            out.push_back(fmt::format("'{}' is {} in the checkpoint; expected {}", name, describe(*stored), describe(tensor)));
        }
    }
    for (const auto& [name, tensor] : checkpoint.arrays)
        if (prefixes.count(name.substr(0, name.find('/'))) && !names.count(name))
            out.push_back(fmt::format("'{}' is {} in the checkpoint; not expected", name, describe(tensor)));
    return out;
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
    return fmt::format("{}/{}{:09}{}", folder, prefix, step, suffix);
}

std::vector<std::int64_t> checkpoint_steps(const std::string& folder) {
    std::vector<std::int64_t> out;
    if (!folder_exists(folder)) return out;
    for (const std::string& name : list_files(folder)) {
        std::string_view digits = name;
        if (!digits.starts_with(prefix) || !digits.ends_with(suffix)) continue;
        digits.remove_prefix(prefix.size());
        digits.remove_suffix(suffix.size());
        std::int64_t step = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
        if (error == std::errc{} && end == digits.data() + digits.size()) out.push_back(step);
    }
    std::sort(out.begin(), out.end());
    return out;
}

Checkpoint read_checkpoint(const std::string& folder, std::int64_t step) {
    const std::string path = checkpoint_path(folder, step);
    Checkpoint out = read_checkpoint(path);
    if (out.step != step) fail(ExitCode::run_failed, "checkpoint {} is of step {}, against its name", path, out.step);
    if (out.fact("ended") == "non_finite")
        fail(ExitCode::run_failed, "checkpoint {} is one of a failed end ({}), from which nothing can go on", path,
             out.fact("message"));
    return out;
}

std::optional<Checkpoint> newest_checkpoint(const std::string& folder) {
    const std::vector<std::int64_t> steps = checkpoint_steps(folder);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        try {
            return read_checkpoint(folder, *step);
        } catch (const Error&) {
            // Who goes on from it tells what is wrong.
        }
    }
    return std::nullopt;
}

void rotate_checkpoints(const std::string& folder, std::int64_t step, std::size_t keep) {
    std::vector<std::int64_t> steps = checkpoint_steps(folder);
    std::erase_if(steps, [&](std::int64_t other) { return other > step; });
    for (std::size_t i = 0; i + keep < steps.size(); ++i) remove_file(checkpoint_path(folder, steps[i]));
}

void remove_checkpoints_after(const std::string& folder, std::int64_t step) {
    for (const std::int64_t other : checkpoint_steps(folder))
        if (other > step) remove_file(checkpoint_path(folder, other));
}

}  // namespace palimpsest::train
