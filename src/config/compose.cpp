#include "config/compose.h"

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <unordered_map>

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_config = 16 << 20, deepest_path = 64;

void merge(Value& below, Value above) {
    if (below.kind != Value::Kind::map || above.kind != Value::Kind::map) {
        if (above.kind == Value::Kind::null && below.kind == Value::Kind::map) return;  // "train:" with nothing under it
        below = std::move(above);
        return;
    }
    std::unordered_map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < below.entries.size(); ++i) places.emplace(below.entries[i].key, i);
    for (Value::Entry& entry : above.entries) {
        const auto old = places.find(entry.key);
        if (old == places.end()) {
            below.entries.push_back(std::move(entry));
            continue;
        }
        below.entries[old->second].source = entry.source;
        merge(below.entries[old->second].value, std::move(entry.value));
    }
}

class Composer {
public:
    Composer(const std::vector<std::string>& config_dirs, Diagnostics& errors) : config_dirs_(config_dirs), errors_(errors) {}

    Value load(const std::string& name, const std::string& text) {
        Value own = parse_yaml(name, text, errors_);
        if (own.kind != Value::Kind::map) {
            if (own.kind != Value::Kind::null) errors_.error(own.source, "a config is a map of keys, such as 'seed: 1'");
            errors_.throw_if_any();
        }
        open_.push_back(name);
        Value all = Value::map(own.source);
        if (const Value* base = own.find("base"))
            for (const Value* item : bases(*base)) merge(all, load_base(*item, fs::path(name).parent_path()));
        open_.pop_back();
        const Source whole = own.source;
        merge(all, std::move(own));
        all.source = whole;
        return all;
    }

private:
    std::vector<const Value*> bases(const Value& base) {
        std::vector<const Value*> files;
        if (base.kind == Value::Kind::scalar) files.push_back(&base);
        else if (base.kind == Value::Kind::list)
            for (const Value& item : base.items) files.push_back(&item);
        else give_up(base, "'base' expects a file or a list of files, such as [tasks/mqar.yaml, models/small.yaml]");
        return files;
    }

    Value load_base(const Value& file, const fs::path& beside) {
        if (file.kind != Value::Kind::scalar) give_up(file, "'base' expects the name of a file");
        std::vector<std::string> tried;
        std::vector<fs::path> folders = {beside};
        folders.insert(folders.end(), config_dirs_.begin(), config_dirs_.end());
        for (const fs::path& folder : folders) {
            const std::string path = (folder / file.text).lexically_normal().string();
            if (std::find(tried.begin(), tried.end(), path) != tried.end()) continue;
            tried.push_back(path);
            if (!can_be_read(path)) continue;
            const std::string identity = real_path(path);
            if (std::any_of(open_.begin(), open_.end(), [&](const std::string& open) { return real_path(open) == identity; }))
                give_up(file, fmt::format("bases in a circle: {} -> {}", join(open_, " -> "), path));
            if (open_.size() > deepest) give_up(file, fmt::format("bases on bases, more than {} files deep", deepest));
            const auto known = loaded_.find(identity);
            return known != loaded_.end() ? known->second : loaded_.emplace(identity, load(path, read_config(path))).first->second;
        }
        give_up(file, fmt::format("no base '{}'; looked for {}", file.text, join(tried, ", ")));
    }

    [[noreturn]] void give_up(const Value& value, std::string message) {
        errors_.error(value.source, std::move(message));
        errors_.throw_if_any();
        throw InternalError("unreachable");
    }

    static std::string real_path(const std::string& path) {
        std::error_code error;
        const fs::path real = fs::canonical(path, error);
        return error ? path : real.string();
    }

    static constexpr std::size_t deepest = 64;
    const std::vector<std::string>& config_dirs_;
    Diagnostics& errors_;
    std::vector<std::string> open_;                  // the files being read, outermost first
    std::unordered_map<std::string, Value> loaded_;  // bases with their own bases, by real path, so that each is read once
};

// Splits a dotted path. Keys of a sweep have dots themselves: "sweep.grid.train.lr" has 3 parts, "sweep.random.draw.train.lr" 4.
std::vector<std::string> split(const std::string& path) {
    std::vector<std::string> parts = {""};
    for (const char c : path)
        if (c == '.') parts.emplace_back();
        else parts.back() += c;
    if (parts.size() < 3 || parts[0] != "sweep") return parts;
    const bool deeper = parts[1] == "exclude" || (parts[1] == "random" && parts[2] == "draw");
    const std::size_t before = parts[1] == "grid" || parts[1] == "zip" ? 2 : deeper ? 3 : parts.size();
    if (before >= parts.size()) return parts;
    std::string key = join({parts.begin() + static_cast<std::ptrdiff_t>(before), parts.end()}, ".");
    parts.resize(before);
    parts.push_back(std::move(key));
    return parts;
}

bool parse_index(const std::string& part, std::size_t& index) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    return error == std::errc() && end == part.data() + part.size();
}

}  // namespace

bool can_be_read(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    return fs::exists(status) && !fs::is_directory(status);
}

std::string read_config(const std::string& path) {
    std::string text = read_file(path, longest_config + 1);
    if (text.size() > longest_config)
        fail(ExitCode::usage, "'{}' is larger than {}: that is no config", path, format_bytes(longest_config));
    return text;
}

Value compose(const std::string& name, const std::string& text, const std::vector<std::string>& config_dirs, Diagnostics& errors) {
    return Composer(config_dirs, errors).load(name, text);
}

std::vector<Setting> apply_overrides(Value& root, const std::vector<std::string>& overrides, Diagnostics& errors) {
    auto text = std::make_shared<SourceText>();
    text->name = "<command line>";
    for (std::string argument : overrides) {
        std::replace(argument.begin(), argument.end(), '\n', ' ');
        text->text += argument + "\n";
    }
    std::vector<Setting> settings;
    for (std::size_t i = 0; i < overrides.size(); ++i) {
        const int argument = static_cast<int>(i) + 1;
        const Source place = {text, argument, 1};
        const auto equals = overrides[i].find('=');
        const std::string path = overrides[i].substr(0, equals);
        if (equals == std::string::npos) {
            const bool is_config = path.ends_with(".yaml") || path.ends_with(".yml");
            errors.error(place, fmt::format("'{}' sets nothing; {}", path,
                                            is_config ? "one config at a time" : "write key=value, such as train.lr=1e-3"));
        } else if (path == "base") {
            errors.error(place, "'base' is read from files only");
        } else {
            const int column = static_cast<int>(display_width(path)) + 2;
            const std::size_t before = errors.size();
            Value value = parse_argument(text, argument, column, overrides[i].substr(equals + 1), errors);
            if (errors.size() != before) continue;
            settings.push_back({path, value.source, false});
            set_path(root, path, std::move(value), place, errors);
        }
    }
    return settings;
}

void set_path(Value& root, const std::string& path, Value value, const Source& key, Diagnostics& errors) {
    const std::vector<std::string> parts = split(path);
    if (parts.size() > deepest_path) return errors.error(key, fmt::format("a key of more than {} parts", deepest_path));
    Value* place = &root;
    std::string walked;
    Source here = key;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string& part = parts[i];
        if (part.empty()) return errors.error(key, fmt::format("'{}' has an empty part", path));
        Value* next = nullptr;
        if (place->kind == Value::Kind::list) {
            std::size_t index = 0;
            if (!parse_index(part, index) || index >= place->items.size()) {
                const std::string right =
                    place->items.empty() ? "it is empty" : fmt::format("its indices are 0 to {}", place->items.size() - 1);
                return errors.error(here, fmt::format("'{}' is a list and has no entry '{}'; {}", walked, part, right));
            }
            next = &place->items[index];
        } else if (place->kind == Value::Kind::scalar) {
            return errors.error(here, fmt::format("'{}' is a single value and has no key '{}'", walked, part));
        } else {
            next = place->find(part);
            if (!next) {
                next = &place->set(part, Value::map(here));
                place->entries.back().source = here;
            } else if (i + 1 == parts.size()) {
                const auto entry =
                    std::find_if(place->entries.begin(), place->entries.end(), [&](const auto& e) { return e.key == part; });
                entry->source = here;
            }
        }
        place = next;
        walked += (i ? "." : "") + part;
        here.column += static_cast<int>(display_width(part)) + 1;
    }
    *place = std::move(value);
}

const Value* find_path(const Value& root, std::string_view path) {
    const Value* place = &root;
    for (const std::string& part : split(std::string(path))) {
        std::size_t index = 0;
        if (place->kind != Value::Kind::list) place = place->find(part);
        else place = parse_index(part, index) && index < place->items.size() ? &place->items[index] : nullptr;
        if (!place) return nullptr;
    }
    return place;
}

bool is_below(std::string_view path, std::string_view ancestor) {
    return path == ancestor || (path.starts_with(ancestor) && path[ancestor.size()] == '.');
}

}  // namespace palimpsest
