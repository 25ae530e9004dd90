#!/usr/bin/env python3
"""What the build says about itself and about the places that it takes things from: scripts/build.sh and scripts/cmake, in small trees."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PALIMPSEST_SOURCE_DIR"])
CMAKE = SOURCE / "scripts" / "cmake"


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()

    def write(self, name, text="", mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def call(self, *command, cwd=None, **environment):
        """The process and, in one line, all that it said."""
        foreign = ("GIT_", "CMAKE_", "CONDA_", "PALIMPSEST_", "CPATH", "CPLUS_INCLUDE_PATH", "OLDPWD")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        done = subprocess.run([str(word) for word in command], cwd=cwd or self.root, env={**kept, **environment}, text=True,
                              errors="surrogateescape", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done, " ".join(done.stdout.split())


class Commit(InFolder):
    """scripts/cmake/Version.cmake, on a small repository."""

    def setUp(self):
        super().setUp()
        self.tree = self.root / "tree"
        self.write("tree/src/mixers/delta.cpp", "// one\n")
        self.write("tree/tasks/mqar.cpp", "// one\n")
        self.write("tree/README.md", "one\n")
        self.write("tree/.gitignore", "*_mine.cpp\n")
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "one")
        self.head = self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments):
        done, _ = self.call("git", *arguments, cwd=self.tree)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def version(self, *before, **environment):
        """(commit, dirty, changes as the compiled program has them, what was said)."""
        options = f"-DSOURCE={self.tree}", f"-DBINARY={self.root}", f"-DGENERATED={self.root}/generated"
        done, said = self.call(*before, "cmake", *options, "-P", CMAKE / "Version.cmake", **environment)
        self.assertEqual(done.returncode, 0, said)
        words = (self.root / "generated/version_info.h").read_text().split()
        literal = (self.root / "generated/code_changes.h").read_text(errors="surrogateescape").split("[] = ", 1)[1].rstrip(";\n")
        lines = [line[1:-1] for line in literal.split("\n")]
        self.assertTrue(all(line[0] + line[-1] == '""' for line in literal.split("\n")))
        changes = "".join(lines)
        for written, meant in (("\\\\", "\0"), ("\\n", "\n"), ("\\r", "\r"), ('\\"', '"'), ("\0", "\\")):
            changes = changes.replace(written, meant)
        commit, dirty = (words[words.index("PALIMPSEST_" + name) + 1] for name in ("COMMIT", "DIRTY"))
        return commit.strip('"'), dirty == "true", changes, said

    def test_a_clean_tree_has_no_changes(self):
        self.write("tree/notes.txt", "mine\n")
        self.write("tree/README.md", "two\n")
        self.write("tree/src/mixers/delta.cpp~", "a copy of an editor\n")
        self.assertEqual(self.version(), (self.head, False, "", ""))

    def test_a_changed_file_is_a_change(self):
        text = '// "two"\\n @commit@ ${commit} )x" ü ; [ \r.\n'
        self.write("tree/tasks/mqar.cpp", text)
        commit, dirty, changes, said = self.version()
        self.assertEqual((commit, dirty, said), (self.head, True, ""))
        self.assertIn("--- a/tasks/mqar.cpp\n+++ b/tasks/mqar.cpp\n", changes)
        self.assertTrue(changes.endswith("@@ -1 +1 @@\n-// one\n+" + text), changes)

    def test_a_new_file_is_a_change_though_git_does_not_track_it(self):
        for name in ("src/mixers/new.cpp", "src/mixers/it_is_mine.cpp", "tasks/new task.cpp"):
            with self.subTest(name):
                path = self.write("tree/" + name, "// new\n")
                commit, dirty, changes, said = self.version()
                path.unlink()
                self.assertEqual((commit, dirty, said), (self.head, True, ""))
                self.assertIn("new file mode 100644\n", changes)
                self.assertIn("@@ -0,0 +1 @@\n+// new\n", changes)

    def test_changes_are_as_text_says_whatever_the_user_has_set(self):
        self.write("tree/src/mixers/delta.cpp", "// two\n")
        expected = self.version()
        for setting in ("diff.external false", "diff.noprefix true", "color.ui always", "diff.mnemonicPrefix true"):
            self.git("config", *setting.split())
        self.assertEqual(self.version(), expected)
        self.assertTrue(expected[1])

    def test_many_changes_are_cut_and_say_so(self):
        self.write("tree/src/mixers/delta.cpp", "x" * 100 + "\n" + "y" * (1 << 20) + "\n")
        changes = self.version()[2]
        self.assertRegex(changes[-100:], r"y\n\(cut here: 1048576 of 10488\d\d bytes\)\n$")

    def test_a_checkout_of_another_user_has_its_commit(self):
        self.write("tree/src/mixers/new.cpp", "// new\n")
        expected = self.version()
        self.assertEqual(expected[:2], (self.head, True))
        self.assertEqual(self.version(GIT_TEST_ASSUME_DIFFERENT_OWNER="1"), expected)
        refused, _ = self.call("git", "rev-parse", "HEAD", cwd=self.tree, GIT_TEST_ASSUME_DIFFERENT_OWNER="1")
        self.assertIn("dubious ownership", refused.stdout)

    def test_another_repository_in_the_environment_is_not_ours(self):
        self.call("git", "init", "--quiet", self.root / "other")
        self.assertEqual(self.version(GIT_DIR=str(self.root / "other/.git"))[:2], (self.head, False))

    def test_an_unreadable_repository_is_told(self):
        shutil.rmtree(self.tree / ".git")
        self.assertEqual(self.version(), ("unknown", False, "", ""))  # an archive
        self.write("tree/.git", "gitdir: /nowhere/else\n")
        commit, dirty, changes, said = self.version()
        self.assertEqual((commit, dirty, changes), ("unknown", False, ""))
        self.assertIn(f"The commit or the changes of {self.tree} will be missing in the records of runs, since git rev-parse HEAD "
                      "failed: 128 fatal: not a git repository: /nowhere/else", said)

    def test_where_the_parent_ignores_its_childrens_ends(self):
        self.write("tree/src/mixers/new.cpp", "// new\n")
        expected = self.version()
        trap = self.write("ignoring", '#!/bin/sh\ntrap "" CHLD\nexec "$@"\n', 0o755)
        self.assertEqual(self.version(trap), expected)
        self.assertTrue(expected[1])

    def test_a_copied_build_folder_is_refused(self):
        self.write("tree/CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(tree LANGUAGES NONE)\n"
                   f"add_custom_target(v ALL COMMAND ${{CMAKE_COMMAND}} -DSOURCE=${{CMAKE_SOURCE_DIR}} -DBINARY=${{CMAKE_BINARY_DIR}} "
                   f"-DGENERATED=${{CMAKE_BINARY_DIR}}/generated -P {CMAKE}/Version.cmake)\n")
        build, copy = self.tree / "build/release", self.root / "copy/build/release"
        self.call("cmake", "-S", self.tree, "-B", build, "-G", "Ninja")
        shutil.copytree(self.tree, self.root / "copy", symlinks=True)
        done, said = self.call("cmake", "--build", build)
        self.assertEqual(done.returncode, 0, said)
        done, said = self.call("cmake", "--build", copy)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{copy} is a copy of {build} and would compile the sources in {self.tree}: remove it and build anew", said)


class Places(InFolder):
    """scripts/cmake/Packages.cmake: libraries and headers come from one place."""

    LIBRARIES = {"fmt": "fmt/format.h", "spdlog": "spdlog/spdlog.h", "yaml-cpp": "yaml-cpp/yaml.h", "HDF5": "hdf5.h",
                 "nlohmann_json": "nlohmann/json.hpp", "CLI11": "CLI/CLI.hpp"}
    OTHERS = [library for library in LIBRARIES if library != "HDF5"]

    def prefix(self, name, with_library, with_header):
        """A folder as conda makes it, with libraries that CMake can find and headers that the compiler can find."""
        for package in with_library:
            variables = 'set(HDF5_INCLUDE_DIRS "${CMAKE_CURRENT_LIST_DIR}/../../../include")\n' if package == "HDF5" else ""
            self.write(f"{name}/lib/cmake/{package}/{package}Config.cmake", f'{variables}message(STATUS "{package} of {name}")\n')
        for package in with_header:
            self.write(f"{name}/include/{self.LIBRARIES[package]}")
        self.write(f"{name}/bin/python3", "#!/bin/sh\n", 0o755)
        return self.root / name

    def configure(self, **environment):
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(tree LANGUAGES C)\n"
                   f"include({CMAKE}/Packages.cmake)\n"
                   'message(STATUS "PATH is looked at: ${CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH}")\n')
        return self.call("cmake", "-S", self.root, "-B", self.root / "build", "-DCMAKE_C_COMPILER_WORKS=ON", **environment)

    def test_conda_on_the_path_is_no_place_to_look(self):
        conda = self.prefix("conda", ["fmt", "HDF5"], self.LIBRARIES)
        done, said = self.configure(PATH=f"{conda}/bin:{os.environ['PATH']}", CONDA_PREFIX=str(conda))
        self.assertEqual(done.returncode, 0, said)
        self.assertNotIn("of conda", said)
        self.assertIn("PATH is looked at: --", said)

    def test_all_from_conda(self):
        conda = self.prefix("conda", self.OTHERS, self.OTHERS)  # CMake asks HDF5 by its own compiler
        done, said = self.configure(CMAKE_PREFIX_PATH=str(conda))
        self.assertEqual(done.returncode, 0, said)
        self.assertEqual(said.count("of conda"), 5)

    def test_libraries_of_their_own_folders_each(self):
        prefixes = [str(self.prefix("place_" + package, [package], [package])) for package in self.OTHERS]
        done, said = self.configure(CMAKE_PREFIX_PATH=":".join(prefixes))
        self.assertEqual(done.returncode, 0, said)

    def test_headers_of_another_place_than_the_library_are_an_error(self):
        conda = self.prefix("conda", ["fmt"], ["fmt", "spdlog"])
        for environment in ({"CMAKE_PREFIX_PATH": str(conda)}, {"CPATH": f"{conda}/include"}):
            shutil.rmtree(self.root / "build", ignore_errors=True)
            done, said = self.configure(**environment)
            self.assertEqual(done.returncode, 1)
            package = "spdlog" if "CPATH" not in environment else "fmt"
            self.assertIn(f"The compiler would take the headers of {package} from {conda}/include, but its library is that of /usr. "
                          f"Take all libraries from one place: leave {conda} out", said)
            self.assertIn(f"and remove {self.root}/build before configuring again.", said)

    def test_a_libtorch_in_a_folder_of_any_name(self):
        torch = self.root / "Ada's torch, $HOME & all"
        for name in ("include/torch/headeronly/version.h", "include/ATen/core/Tensor.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
            text = "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 5\n#define TORCH_VERSION_PATCH 1\n"
            self.write(torch / name, text if name.endswith(".h") else "_ZN3c105ErrorC1ENSt7__cxx11\n")
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(tree LANGUAGES CXX)\n"
                   f"include({CMAKE}/LibTorch.cmake)\nadd_library(tree OBJECT tree.cpp)\ntarget_link_libraries(tree PRIVATE palimpsest::torch)\n")
        self.write("tree.cpp", "#include <torch/headeronly/version.h>\nstatic_assert(TORCH_VERSION_MINOR == 5);\n")
        configure = ["cmake", "-S", self.root, "-B", self.root / "build", "-G", "Ninja", "-DCMAKE_CXX_COMPILER_WORKS=ON"]
        done, said = self.call(*configure, f"-DPALIMPSEST_TORCH={torch}")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"PALIMPSEST_TORCH={torch}: a compiler's options and CMake's lists are taken apart at , ; [ ] \" \\. Give it "
                      "another name, or make a link to it under one (ln -s)", said)
        plain = self.root / "Ada's torch $HOME & all"
        plain.symlink_to(torch)
        done, said = self.call(*configure, f"-DPALIMPSEST_TORCH={plain}")
        self.assertEqual(done.returncode, 0, said)
        done, said = self.call("cmake", "--build", self.root / "build")
        self.assertEqual(done.returncode, 0, said)


class Script(InFolder):
    """scripts/build.sh, with cmake and scripts/setup.sh as stand-ins that note how they were called."""

    def setUp(self):
        super().setUp()
        self.script = self.write("tree/scripts/build.sh", (SOURCE / "scripts/build.sh").read_text(encoding="utf-8"), 0o755)
        settings = "PALIMPSEST_TORCH='/my torch'\nPALIMPSEST_PYTHON='py'\nPALIMPSEST_PREFIX=''\n"
        self.write("tree/scripts/setup.sh", f"#!/bin/sh\nmkdir -p build\ncat >build/setup.env <<'END'\n{settings}END\n", 0o755)
        self.write("bin/cmake", f"#!/bin/sh\nexec >>'{self.root}/log'\nfor word; do printf '[%s]' \"$word\"; done\necho\n", 0o755)
        self.path = f"{self.root}/bin:{os.environ['PATH']}"

    def test_what_the_set_up_found_is_passed_on(self):
        done, said = self.call(self.script, "release", "palimpsest", PATH=self.path, PALIMPSEST_CUDA="OFF")
        self.assertEqual((done.returncode, said), (0, ""))
        configured, built = (self.root / "log").read_text().splitlines()
        self.assertEqual(configured, "[--preset][release][-DPALIMPSEST_TORCH=/my torch][-DPALIMPSEST_PYTHON=py]"
                         "[-DPALIMPSEST_PREFIX=][-DPALIMPSEST_CUDA=OFF]")
        self.assertRegex(built, r"^\[--build\]\[build/release\]\[--parallel\]\[\d+\]\[--target\]\[palimpsest\]$")

    def test_a_build_folder_of_another_place_is_refused(self):
        self.write("tree/build/release/CMakeCache.txt", f"CMAKE_HOME_DIRECTORY:INTERNAL={self.root}/original\n")
        done, said = self.call(self.script, "release", PATH=self.path)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(said, f"build: build/release was made for the sources in {self.root}/original, and came here with a copy or "
                         "a move: remove it (rm -rf build/release) and call again")
        self.assertFalse((self.root / "log").exists())
        (self.root / "original").symlink_to(self.root / "tree")  # another name of the same place
        done, said = self.call(self.script, "release", PATH=self.path)
        self.assertEqual((done.returncode, said), (0, ""))


class Integration(InFolder):
    """.ci/run, with stand-ins for what it calls."""

    PARTS = ["layout", "build.sh dev", "ctest --preset dev --parallel 2 --no-tests=error", "quickstart.sh", "test.sh"]

    def setUp(self):
        super().setUp()
        self.script = self.write("tree/.ci/run", (SOURCE / ".ci/run").read_text(encoding="utf-8"), 0o755)
        note = 'echo "$(basename "$0")${*:+ $*}|$HOME|${XDG_CACHE_HOME-}|$(ls -A "$HOME")" >>"$LOG"\n[ "$(basename "$0")${*:+ $*}" != "$FAILS" ]\n'
        for name in ("tree/scripts/build.sh", "tree/scripts/quickstart.sh", "tree/scripts/test.sh", "bin/ctest", "bin/nvcc"):
            self.write(name, "#!/bin/bash\n" + note, 0o755)
        self.write("tree/tests/layout/test_layout.py",
                   "import os, sys\nopen(os.environ['LOG'], 'a').write('layout|%s||\\n' % os.environ['HOME'])\n"
                   "sys.exit(os.environ['FAILS'] == 'layout')\n")
        self.write("tree/tasks/copy.cpp")
        self.object = self.write("tree/build/release/src/CMakeFiles/palimpsest_task_cuda.dir/copy.cu.o")

    def run_parts(self, fails=""):
        log = self.write("log")
        done, said = self.call(self.script, PATH=f"{self.root}/bin:{os.environ['PATH']}", LOG=str(log), FAILS=fails, HOME="/mine",
                               XDG_CACHE_HOME="/mine/cache")
        calls = [line.split("|") for line in log.read_text().splitlines()]
        for _, home, cache, content in calls:
            self.assertRegex(home, rf"^{self.root}/tree/build/home-\w+$")
            self.assertEqual((cache, content), ("", ""))
            self.assertFalse(pathlib.Path(home).exists())  # it goes at the end
        return done.returncode, [call[0] for call in calls], said

    def test_the_parts_come_in_order_in_an_empty_home(self):
        code, parts, said = self.run_parts()
        self.assertEqual((code, parts), (0, self.PARTS), said)
        self.assertIn("1 of 1 files compiled by nvcc", said)

    def test_a_part_that_fails_ends_it(self):
        for i, part in enumerate(self.PARTS):
            with self.subTest(part):
                code, parts, _ = self.run_parts(fails=part)
                self.assertEqual((code, parts), (1, self.PARTS[:i + 1]))

    def test_nvcc_that_compiled_too_little_is_a_failure(self):
        self.object.unlink()
        code, parts, said = self.run_parts()
        self.assertEqual((code, parts), (1, self.PARTS[:4]))
        self.assertTrue(said.endswith("0 of 1 files compiled by nvcc"), said)


if __name__ == "__main__":
    unittest.main()
