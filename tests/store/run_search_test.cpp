#include "core/file.h"
#include "sample.h"
#include "store/run_folder.h"

#include <filesystem>

#include "catch.h"

using namespace palimpsest;
using sample::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// A folder of results, and another elsewhere that links lead to.
struct Tree {
    TemporaryFolder here, there;

    std::string run(const TemporaryFolder& where, const std::string& name, const char* mark = "run.h5") const {
        make_folders(where.file(name));
        write_file_atomic(where.file(name) + "/" + mark, "");
        return where.file(name);
    }
    void link(const std::string& name, const std::string& target) const { fs::create_directory_symlink(target, here.file(name)); }
    std::vector<std::string> found() const { return find_run_folders(here.path()); }
};

using Folders = std::vector<std::string>;

}  // namespace

TEST_CASE("runs and sweeps behind links are found under the link's name") {
    const Tree tree;
    tree.run(tree.there, "sweep/one");
    tree.run(tree.there, "sweep/two");
    tree.run(tree.there, "alone");
    tree.link("linked", tree.there.file("sweep"));
    tree.link("single", tree.there.file("alone"));
    CHECK(tree.found() == Folders{tree.here.file("linked/one"), tree.here.file("linked/two"), tree.here.file("single")});
    CHECK(find_run_folders(tree.here.file("linked")) == Folders{tree.here.file("linked/one"), tree.here.file("linked/two")});
}

TEST_CASE("each run counts once, under its own name where that is below the root") {
    const Tree tree;
    const std::string run = tree.run(tree.here, "sweep/run");
    tree.run(tree.there, "far/away");
    tree.link("latest", "sweep/run");
    tree.link("again", tree.here.file("sweep"));
    tree.link("a", tree.there.file("far"));
    tree.link("b", tree.there.file("far/away"));
    CHECK(tree.found() == Folders{tree.here.file("a/away"), run});
}

TEST_CASE("links that lead in a circle, up, or nowhere end the search nowhere else") {
    const Tree tree;
    const std::string run = tree.run(tree.here, "results/sweep/run");
    tree.run(tree.here, "elsewhere/run");
    tree.link("results/self", ".");
    tree.link("results/sweep/up", "..");
    tree.link("results/top", "../..");
    tree.link("results/broken", "no/such/folder");
    tree.link("results/file", "sweep/run/run.h5");
    tree.link("results/back", "forth");
    tree.link("results/forth", "back");
    CHECK(find_run_folders(tree.here.file("results")) == Folders{run});
}

TEST_CASE("a run without its file is a run all the same") {
    const Tree tree;
    Folders expected;
    for (const char* mark : {"DONE", "FAILED.json", "LOCK", "run.h5"})
        expected.push_back(tree.run(tree.here, std::string("with-") + mark, mark));
    make_folders(tree.here.file("with-nothing"));
    make_folders(expected.back() + "/checkpoints");
    write_file_atomic(tree.here.file("config.yaml"), "");
    CHECK(tree.found() == expected);
    for (const std::string& folder : expected) CHECK(is_run_folder(folder));
    CHECK_FALSE(is_run_folder(tree.here.path()));
}
