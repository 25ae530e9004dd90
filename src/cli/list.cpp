// palimpsest list mixers|tasks: prints what the registries hold.
#include "cli/app.h"
#include "cli/output.h"
#include "core/text.h"
#include "mixers/mixer.h"
#include "task/task.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>

namespace palimpsest::cli {
namespace {

struct Item {
    std::string kind, name, summary, paper;
};

ExitCode list(const std::string& what, bool json) {
    std::vector<Item> items;
    if (what != "tasks") {
        for (const std::string& name : mixer_names())
            items.push_back({"mixer", name, get_mixer(name).facts().summary, get_mixer(name).facts().paper});
    }
    if (what != "mixers") {
        for (const std::string& name : task_names())
            items.push_back({"task", name, get_task(name).facts().summary, get_task(name).facts().paper});
    }
    if (json) {
        nlohmann::json out = nlohmann::json::array();
        for (const Item& item : items)
            out.push_back({{"kind", item.kind}, {"name", item.name}, {"summary", item.summary}, {"paper", item.paper}});
        print_json(out);
        return ExitCode::ok;
    }
    Table table({"kind", "name", "summary"});
    for (const Item& item : items) table.add({item.kind, item.name, item.summary});
    print(table.str());
    return ExitCode::ok;
}

}  // namespace

void add_list(CLI::App& app, Session& session) {
    auto what = std::make_shared<std::string>();
    auto json = std::make_shared<bool>(false);
    CLI::App* verb = app.add_subcommand("list", "list the mixers and tasks");
    verb->add_option("WHAT", *what, "mixers or tasks; both when not given")->check(CLI::IsMember({"mixers", "tasks"}));
    verb->add_flag("--json", *json, "print JSON");
    verb->callback([=, &session] { session.action = [=] { return list(*what, *json); }; });
}

}  // namespace palimpsest::cli
