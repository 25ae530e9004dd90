// What makes two runs the same run. A key at its default is not written, so new keys keep old ids; a new
// default raises the version.
#include "config/build.h"
#include "config/layers.h"
#include "core/hash.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace palimpsest {
namespace {

constexpr int schema_version = 1;

class Lines {
public:
    void add(const std::string& path, const Value& value) {
        if (value.kind != Value::Kind::map) {
            lines_.push_back(path + "=" + emit_flow(value));
            return;
        }
        for (const Value::Entry& entry : value.entries) add(path.empty() ? entry.key : path + "." + entry.key, entry.value);
    }
    std::string str() {
        std::sort(lines_.begin(), lines_.end());
        return fmt::format("palimpsest run, schema {}\n{}\n", schema_version, join(lines_, "\n"));
    }

private:
    std::vector<std::string> lines_;
};

bool same(const std::vector<SegmentSpec>& a, const std::vector<SegmentSpec>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const SegmentSpec& x, const SegmentSpec& y) { return x.resolved.same_content(y.resolved); });
}

void add_segments(Lines& lines, const std::string& split, const std::vector<SegmentSpec>& segments, const AnySchema& schema) {
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const std::string path = fmt::format("task.{}.{}", split, i);
        lines.add(path, schema.write_identity(segments[i].options.get()));
        lines.add(path + ".examples", fields::write(segments[i].examples));
    }
}

// Writes the layers in one form, however the config wrote them: what all layers of a mixer have counts once, the rest by layer.
std::vector<Layer> add_mixers(Lines& lines, const RunSpec& run, const Catalog& catalog) {
    const std::vector<std::string> names = run.model.mixers_by_layer();
    for (const auto& [name, options] : run.mixers)
        lines.add("mixers." + name, catalog.mixer_schema(name)->write_identity(options.get()));
    std::map<std::string, std::map<std::size_t, Value>> apart;
    for (const auto& [i, options] : run.layers) apart[names[i]][i] = catalog.mixer_schema(names[i])->write_identity(options.get());
    std::vector<Layer> layers(names.begin(), names.end());
    for (auto& [name, by_layer] : apart) {
        lines.add("mixers." + name, take_shared(by_layer, true));
        for (auto& [i, own] : by_layer) layers[i].options = std::move(own);
    }
    return layers;
}

}  // namespace

std::string identity_text(const RunSpec& run, const Catalog& catalog) {
    Lines lines;
    RunSpec canonical = run;
    canonical.model.layers = add_mixers(lines, run, catalog);
    canonical.model.depth = ModelSpec().depth;
    lines.add("", run_schema().write_identity(&canonical));
    lines.add("task.name", fields::write(run.task.name));
    const AnySchema& task = *catalog.task_schema(run.task.name);
    add_segments(lines, "train", run.task.train, task);
    add_segments(lines, "test", run.task.test, task);
    if (!same(run.task.valid, run.task.test)) add_segments(lines, "valid", run.task.valid, task);
    return lines.str();
}

std::string identify(const RunSpec& run, const Catalog& catalog) { return sha256_hex(identity_text(run, catalog)).substr(0, 12); }

}  // namespace palimpsest
