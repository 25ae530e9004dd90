#include "mixers/mixer.h"
#include "sweep/execute.h"
#include "task/task.h"

namespace palimpsest {

Catalog registry_catalog() {
    Catalog catalog;
    catalog.tasks = task_names();
    catalog.mixers = mixer_names();
    catalog.task_schema = [](const std::string& name) -> const AnySchema* {
        const Task* task = find_task(name);
        return task == nullptr ? nullptr : &task->schema();
    };
    catalog.mixer_schema = [](const std::string& name) -> const AnySchema* {
        const MixerKind* kind = find_mixer(name);
        return kind == nullptr ? nullptr : &kind->schema();
    };
    return catalog;
}

}  // namespace palimpsest
