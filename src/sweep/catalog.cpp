#include "sweep/catalog.h"

#include "core/error.h"
#include "mixers/mixer.h"
#include "task/task.h"
#include "train/optimizer.h"

#include <exception>
#include <map>
#include <memory>

namespace palimpsest {
Catalog registry_catalog() {
    Catalog catalog;
    catalog.tasks = task_names();
    catalog.mixers = mixer_names();
    catalog.optimizers = train::optimizer_names();
    catalog.task_schema = [](const std::string& name) -> const AnySchema* {
        const Task* task = find_task(name);
        return task == nullptr ? nullptr : &task->schema();
    };
    catalog.mixer_schema = [](const std::string& name) -> const AnySchema* {
        const MixerKind* kind = find_mixer(name);
        return kind == nullptr ? nullptr : &kind->schema();
    };
    // A sweep asks for the same segment at point after point, and a long one takes a while.
    const auto known =
        std::make_shared<std::map<std::string, std::exception_ptr>>();  // by task and options: what is wrong, if anything
    catalog.check_task = [known](const std::string& name, const void* options) {
        const Task& task = get_task(name);
        const auto [entry, is_new] = known->try_emplace(name + " " + emit_flow(task.schema().write(options)));
        if (is_new) {
            try {
                static_cast<void>(task.compile(options));
            } catch (const Error&) {
                entry->second = std::current_exception();
            }
        }
        if (entry->second) std::rethrow_exception(entry->second);
    };
    // The mixer declares its parameters; nothing is allocated.
    catalog.check_mixer = [](const std::string& name, const void* options, const ModelSpec& model) {
        nn::Parameters declared;
        BuildContext build;
        build.scope.parameters = &declared;
        build.scope.prefix = name;
        build.scope.model = &model;
        build.options = options;
        build.width = model.width;
        build.layers = 1;
        build.rotary = model.positions == Positions::rotary;
        static_cast<void>(get_mixer(name).build(build));
    };
    return catalog;
}

}  // namespace palimpsest
