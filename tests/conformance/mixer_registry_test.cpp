// The registry: one file a mixer, facts that docs are made of, errors that name what would be right.
#include "bench.h"
#include "core/error.h"
#include "source_dir.h"

#include <algorithm>
#include <filesystem>

using namespace palimpsest;
using namespace palimpsest::conformance;

TEST_CASE("every mixer is a file of its name, and every file a mixer") {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/src/mixers")) {
        if (entry.path().extension() == ".cpp" && entry.path().stem() != "registry") files.push_back(entry.path().stem().string());
    }
    std::sort(files.begin(), files.end());
    CHECK(mixer_names() == files);
    CHECK(std::is_sorted(files.begin(), files.end()));
}

TEST_CASE("every mixer states its facts and the meaning of its options") {
    for (const std::string& name : mixer_names()) {
        INFO(name);
        const MixerFacts& facts = get_mixer(name).facts();
        CHECK(facts.name == name);
        for (const std::string* text : {&facts.summary, &facts.paper}) {
            CHECK_FALSE(text->empty());
            CHECK(text->find('\n') == std::string::npos);
        }
        CHECK_FALSE(facts.recurrence.empty());
        for (const Option& option : get_mixer(name).schema().options()) {
            INFO(option.name);
            CHECK_FALSE(option.meaning.empty());
        }
    }
}

TEST_CASE("rates and time steps are never decayed, norms and biases under weight_decay_on: all alone") {
    for (const Variant& variant : variants()) {
        INFO(variant.title());
        const Unit unit(variant, {1}, at::kFloat);
        for (const nn::ParameterInfo& info : unit.parameters.table()) {
            INFO(info.name);
            const auto ends = [&](const char* word) { return info.name.ends_with(word); };
            const bool gate = ends("a_log") || ends("dt_bias") || ends("skip");
            CHECK((info.decay == nn::Decay::never) == gate);
            if (ends(".bias") || ends("norm.weight")) CHECK(info.decay == nn::Decay::no);
            CHECK_FALSE(nn::is_decayed(info.decay, false) != (info.decay == nn::Decay::yes));
            CHECK(nn::is_decayed(info.decay, true) == !gate);
        }
    }
}

TEST_CASE("an unknown mixer is an error that lists the known ones") {
    CHECK(find_mixer("sofmax") == nullptr);
    std::string known;
    for (const std::string& name : mixer_names()) known += (known.empty() ? "" : ", ") + name;
    CHECK_THROWS_WITH(get_mixer("sofmax"), "unknown mixer 'sofmax'; did you mean 'softmax'?; known mixers: " + known);
    CHECK_THROWS_WITH(get_mixer("zzzzzzzz"), "unknown mixer 'zzzzzzzz'; known mixers: " + known);
}

TEST_CASE("options that do not fit the width are errors that say so") {
    CHECK_THROWS_WITH(Unit({"softmax", {{"heads", "3"}}}, {1}, at::kFloat),
                      "mixers.softmax.heads: 3 heads do not divide model.width 16");
    CHECK_THROWS_WITH(Unit({"softmax", {{"heads", "16"}}, true}, {1}, at::kFloat),
                      "mixers.softmax.heads: rotary positions need an even head width; 16 / 16 heads is 1");
}

TEST_CASE("variants cover every mixer") {
    for (const std::string& name : mixer_names()) {
        INFO(name);
        CHECK(std::any_of(variants().begin(), variants().end(),
                          [&](const Variant& v) { return v.mixer == name && v.options.empty(); }));
    }
    CHECK(std::any_of(variants().begin(), variants().end(), [](const Variant& v) { return v.title() == "softmax qk_norm=l2"; }));
    CHECK(std::any_of(variants().begin(), variants().end(), [](const Variant& v) { return v.title() == "softmax bias=true"; }));
}
