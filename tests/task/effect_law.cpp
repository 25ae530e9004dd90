// Law: an option of a task changes its examples, or says beside what it does not.
#include "effect_law.h"

#include "support.h"

namespace palimpsest {
using namespace testing;

namespace {

std::vector<std::string> breaches(const Task& task) {
    std::vector<std::shared_ptr<void>> bases;
    for (const Case& c : cases()) {
        if (c.task != task.facts().name) continue;
        bases.push_back(task.schema().make_default());
        Diagnostics errors;
        task.schema().read(bases.back().get(), parse_yaml("case", c.options), "task", errors);
        errors.throw_if_any();
    }
    return EffectLaw(task.schema(),
                     [&](const void* options) -> std::string {
                         try {
                             const auto program = task.compile(options);
                             const Shape& shape = program->shape();
                             return fmt::format("{} {} {} {}", shape.length, shape.vocabulary.size, shape.max_overwrites,
                                                fingerprint(*program, 1, Stream::train, 40));
                         } catch (const Error&) {
                             return "";
                         }
                     })
        .breaches(bases);
}

struct Planted {
    std::int64_t length = 3, scale = 2, shift = 1, unused = 0;
    bool scaled = false;
};

}  // namespace

TEST_CASE("an option of a task has an effect or says where it has none", "[task][law]") {
    for (const std::string& name : task_names()) {
        INFO(name);
        CHECK(breaches(get_task(name)) == std::vector<std::string>{});
    }
}

TEST_CASE("the law of effects finds what was planted", "[task][law]") {
    const Schema<Planted> schema = Schema<Planted>()
                                       .field("length", &Planted::length, "")
                                       .field("scaled", &Planted::scaled, "")
                                       .field("scale", &Planted::scale, "")
                                       .field("shift", &Planted::shift, "")
                                       .used_when("scaled", {"true"})
                                       .field("unused", &Planted::unused, "");
    const auto outcome = [](const void* options) {
        const auto& o = *static_cast<const Planted*>(options);
        return std::to_string(o.length * (o.scaled ? o.scale : 1) + o.shift);
    };
    const auto scaled = std::make_shared<Planted>();
    scaled->scaled = true;
    const std::vector<std::string> found = EffectLaw(schema, outcome).breaches({scaled});
    const auto has = [&](const std::string& line) { return std::find(found.begin(), found.end(), line) != found.end(); };
    CHECK(found.size() == 3);
    CHECK(has("'scale' has no effect beside scaled: false, and does not say so"));
    CHECK(has("'shift' has an effect beside scaled: false, though it says that it has none"));
    CHECK(has("'unused' has no effect anywhere"));
}

}  // namespace palimpsest
