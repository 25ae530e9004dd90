// Options of a mixer that differ by layer.
#include "config/build.h"
#include "errors.h"
#include "fake_catalog.h"

#include "catch.h"

using namespace palimpsest;
using fake::small;

namespace {

std::string error(const std::string& text, const std::vector<std::string>& overrides = {}) {
    const std::string report = error_of([&] { fake::parse(small + text + "\n", overrides); });
    CHECK((report.empty() || report.ends_with("\n1 error")));
    return first_line(report);
}

RunSpec run(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return fake::run(small + text + "\n", overrides);
}

std::int64_t kernel(const RunSpec& spec, std::size_t layer) {
    return static_cast<const fake::Conv*>(spec.options_of(layer).get())->kernel;
}

std::string resolved(const RunSpec& spec, const std::string& path) { return emit_flow(*find_path(spec.resolved, path)); }

}  // namespace

TEST_CASE("a layer may have options of its own", "[layers]") {
    const RunSpec spec =
        run("model: {layers: [conv, {mixer: conv, kernel: 9}, {mixer: delta, heads: 4}, delta]}\nmixers: {conv: {kernel: 5}, "
            "delta: {fades: true}}");
    CHECK(spec.model.mixers_by_layer() == std::vector<std::string>{"conv", "conv", "delta", "delta"});
    CHECK(spec.model.depth == 4);
    CHECK(kernel(spec, 0) == 5);
    CHECK(kernel(spec, 1) == 9);
    const auto delta = [&](std::size_t layer) { return *static_cast<const fake::Delta*>(spec.options_of(layer).get()); };
    CHECK(delta(2).heads == 4);
    CHECK(delta(2).fades);  // from the mixer's section
    CHECK(delta(3).heads == 1);
    // What the layers of a mixer have in common stands in its section, the rest in each of them.
    CHECK(resolved(spec, "model.layers") ==
          "[{mixer: conv, kernel: 5}, {mixer: conv, kernel: 9}, {mixer: delta, heads: 4}, {mixer: delta, heads: 1}]");
    CHECK(resolved(spec, "mixers") == "{conv: {}, delta: {normalise: true, chunk: 16, fades: true, rate: 0.5}}");
}

TEST_CASE("the same layers are the same run, however they are written", "[layers]") {
    const std::string same = run("model: {layers: [conv, delta]}\nmixers: {conv: {kernel: 5}}").id;
    CHECK(run("model: {layers: [{mixer: conv, kernel: 5}, delta]}").id == same);
    CHECK(run("model: {layers: [{mixer: conv, kernel: 5}, {mixer: delta}]}").id == same);
    CHECK(run("model: {layers: [{mixer: conv, kernel: 5}, {mixer: delta, heads: 1, chunk: 64}]}").id == same);
    CHECK(run("model: {layers: [{mixer: conv, kernel: 5}, delta]}")
              .resolved.same_content(run("model: {layers: [conv, delta]}\nmixers: {conv: {kernel: 5}}").resolved));
    CHECK(run("model: {layers: [{mixer: softmax, heads: 2}, {mixer: softmax, heads: 2}]}").id ==
          run("mixers: {softmax: {heads: 2}}").id);

    const RunSpec apart = run("model: {layers: [{mixer: conv, kernel: 3}, {mixer: conv, kernel: 9}]}");
    CHECK(run("model: {layers: [conv, conv]}\nmixers: {conv: {kernel: 3}}",
              {"model.layers=[{mixer: conv, kernel: 3}, {mixer: conv, kernel: 9}]"})
              .id == apart.id);
    CHECK(run("model: {layers: [{mixer: conv, kernel: 3}, conv]}\nmixers: {conv: {kernel: 9}}").id == apart.id);
    CHECK(run("model: {layers: [{mixer: conv, kernel: 9}, {mixer: conv, kernel: 3}]}").id != apart.id);
    CHECK_THAT(identity_text(apart, fake::catalog()), ContainsSubstring("\nmodel.layers=[conv, {mixer: conv, kernel: 9}]\n"));
}

TEST_CASE("mistakes in a layer stand at their place", "[layers]") {
    CHECK(error("model: {layers: [conv, {mixer: conv, kernl: 9}]}") ==
          "dir/f.yaml:5:38: unknown key 'kernl' in 'model.layers.1'; did you mean 'kernel'?");
    CHECK(error("model: {layers: [{mixer: conv, kernel: 0}]}") ==
          "dir/f.yaml:5:40: 'model.layers.0.kernel' must be at least 1, got 0");
    CHECK(error("model: {layers: [{mixer: covn, kernel: 2}]}") == "dir/f.yaml:5:26: unknown mixer 'covn'; did you mean 'conv'?");
    CHECK(error("model: {layers: [conv, {kernel: 2}]}") ==
          "dir/f.yaml:5:24: 'model.layers.1' expects a mixer, such as delta, or a map such as {mixer: delta, heads: 4}");
    CHECK(error("model: {layers: [[conv]]}") ==
          "dir/f.yaml:5:18: 'model.layers.0' expects a mixer, such as delta, or a map such as {mixer: delta, heads: 4}");
    CHECK(error("model: {layers: conv}") == "dir/f.yaml:5:17: 'model.layers' expects a list of layers, got 'conv'; write [conv]");
    CHECK(error("model: {layers: [{mixer: delta, rate: 2}]}") ==
          "dir/f.yaml:5:39: 'model.layers.0.rate' has no effect: it counts only where model.layers.0.fades is true; leave it out");
    CHECK(error("model: {layers: [{mixer: conv, kernel: 2}, {mixer: conv, kernel: 4}, delta]}\nmixers: {conv: {kernel: 9}}") ==
          "dir/f.yaml:6:25: 'mixers.conv.kernel' has no effect: every layer of this mixer has its own 'kernel'; set "
          "model.layers.0.kernel, "
          "model.layers.1.kernel, …");
    CHECK(error("model: {layers: [{mixer: delta, fades: true}, delta]}\nmixers: {delta: {rate: 2}}")
              .empty());  // the first one uses it
}

TEST_CASE("options of a layer can be set and swept by index", "[layers]") {
    const std::string text = "model: {layers: [{mixer: conv, kernel: 3}, {mixer: conv, kernel: 9}, delta]}";
    CHECK(kernel(run(text, {"model.layers.1.kernel=7"}), 1) == 7);
    const Experiment sweep = fake::parse(small + text + "\nsweep: {grid: {model.layers.1.kernel: [3, 7]}}\n");
    REQUIRE(sweep.runs.size() == 2);
    CHECK(sweep.runs[0].varied.at(0) == std::pair<std::string, std::string>("model.layers.1.kernel", "3"));
    CHECK(sweep.runs[0].spec.id == run("model: {layers: [conv, conv, delta]}").id);
    CHECK(kernel(sweep.runs[1].spec, 1) == 7);
    CHECK_THAT(fake::parse(small + text + "\n").explain, ContainsSubstring("kernel: 9"));
}
