#!/usr/bin/env python3
"""scripts/setup.sh in a folder of its own, on a machine of stand-ins: what it finds, asks for, installs, writes and says."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PALIMPSEST_SOURCE_DIR"])
TOOLS = "bash cat cut dirname env grep head ls mkdir mv paste rm sed sort touch uname".split()
MODULES = ["numpy", "h5py", "matplotlib", "xarray", "netCDF4"]
HEADERS = "fmt/format.h spdlog/spdlog.h yaml-cpp/yaml.h hdf5/serial/hdf5.h nlohmann/json.hpp CLI/CLI.hpp catch2/catch.hpp".split()
OPTIONAL = "ccache mold hdf5-tools"
INSTALL = "apt-get -qq -y --no-install-recommends install "

# A Python whose modules lie in `site` and where PYTHONPATH says; -m venv makes another of its kind, -m pip "installs" into `site`.
PYTHON = """#!{bash}
site='{root}/site'
case "$*" in
    *ensurepip*) exit 0 ;;
    "-m venv "*)
        mkdir -p "$3/bin" "$3/site"
        sed 's,^site=.*,site='"'$3'"'/site,' "$0" >"$3/bin/python"
        chmod +x "$3/bin/python"
        exit ;;
    "-m pip "*)
        echo "pip $*" >>'{log}'
        for name in $(compgen -e PIP_); do echo "$name=${{!name}}" >>'{log}'; done
        case "$*" in
            *clang*)
                tool=${{@: -1}} && tool=${{tool%==*}}
                [[ -e '{root}/wheels/'$tool ]] && cp '{root}/wheels/'$tool "$site/../bin" && exit ;;
        esac
        case "$*" in *clang*) exit 1 ;; *torch*) cp -r '{root}/wheels/torch' "$site" ;; *) cp -r '{root}'/wheels/modules/* "$site" ;; esac
        exit ;;
esac
PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}$site exec '{python}' -S -B "$@"
"""


class Setup(unittest.TestCase):
    """Unless a test says otherwise: an ordinary user with all packages, a bare python3, no nvcc."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.log = self.write("log")
        script = (SOURCE / "scripts/setup.sh").read_text(encoding="utf-8")
        self.assertEqual(script.count("\nsystem=(/usr /usr/local)\n"), 1)
        self.script = self.write("tree/scripts/setup.sh", script.replace("(/usr /usr/local)", f"('{self.root}/usr')"), 0o755)
        (self.root / "bin").mkdir()
        for tool in [*TOOLS, "chmod", "cp", "flock"]:
            (self.root / "bin" / tool).symlink_to(shutil.which(tool))
        self.tool("id", "echo 1000")
        self.tool("ldd", "true")
        for tool in ("g++", "cmake", "ninja", "ccache", "mold", "h5dump"):
            self.tool(tool, "exit 9")
        self.tool("sudo", f"echo sudo \"$@\" >>'{self.log}'\n[[ $1 != -n ]] || shift\n\"$@\"")
        self.tool("apt-get", f"echo apt-get \"$@\" >>'{self.log}'")
        for header in HEADERS:
            self.write("usr/include/" + header)
        for name in MODULES:
            self.module("wheels/modules", name)
        self.torch("wheels/torch")
        self.site = self.root / "site"
        self.site.mkdir()
        own = getattr(sys, "_base_executable", sys.executable)
        self.write("bin/python3", PYTHON.format(bash=shutil.which("bash"), log=self.log, root=self.root, python=own), 0o755)

    def write(self, name, text="", mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def tool(self, name, text):
        (self.root / "bin" / name).unlink(missing_ok=True)
        self.write("bin/" + name, f"#!{shutil.which('bash')}\n{text}\n", 0o755)

    def without(self, *tools):
        for tool in tools:
            (self.root / "bin" / tool).unlink()

    def module(self, folder, name, text=""):
        self.write(f"{folder}/{name}/__init__.py", text)
        if name == "matplotlib":
            self.write(f"{folder}/{name}/pyplot.py")

    def modules(self):
        for name in MODULES:
            self.module("site", name)

    def torch(self, folder, version="2.11", abi="_ZN3c105ErrorC1ENSt7__cxx1112basic_string"):
        major, minor = version.split(".")
        self.write(f"{folder}/__init__.py")
        self.write(f"{folder}/include/torch/headeronly/version.h",
                   f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n")
        self.write(f"{folder}/lib/libtorch_cpu.so")
        self.write(f"{folder}/lib/libc10.so", abi + "\n")
        return self.root / folder

    def call(self, expected=0, *options, **environment):
        """What was said on both streams, without the last two lines where all went well."""
        done = subprocess.run([self.script, *options], env={"PATH": str(self.root / "bin"), "HOME": str(self.root), **environment}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, expected, done.stdout)
        lines = done.stdout.splitlines()
        if expected == 0:
            self.assertEqual([line.split(":")[0] for line in lines[-2:]], ["LibTorch 2.11", "Python"], done.stdout)
            lines = lines[:-2]
        return lines

    def assert_found(self, torch, python, prefix=""):
        text = (self.root / "tree/build/setup.env").read_text(encoding="utf-8")
        self.assertEqual(shlex.split(text), [f"PALIMPSEST_TORCH={torch}", f"PALIMPSEST_PYTHON={python}", f"PALIMPSEST_PREFIX={prefix}"])

    def calls(self, *programs):
        return [line for line in self.log.read_text(encoding="utf-8").splitlines() if line.split()[0] in programs]


class Packages(Setup):
    def setUp(self):
        super().setUp()
        self.modules()
        self.torch("site/torch")

    def test_nothing_is_installed_where_all_is_there(self):
        self.assertEqual(self.call(), [])
        self.assert_found(self.site / "torch", self.root / "bin/python3")
        written = (self.root / "tree/build/setup.env").stat().st_mtime_ns
        self.assertEqual(self.call(), [])
        self.assertEqual((self.root / "tree/build/setup.env").stat().st_mtime_ns, written)
        self.assertEqual(self.log.read_text(), "")

    def test_needed_packages_are_installed_by_sudo(self):
        self.without("ninja", "g++")
        shutil.rmtree(self.root / "usr/include/CLI")
        self.assertEqual(self.call(), ["Installing packages: g++ ninja-build libcli11-dev"])
        self.assertEqual(self.calls("apt-get"), ["apt-get -qq update", INSTALL + "g++ ninja-build libcli11-dev"])

    def test_needed_packages_that_cannot_be_installed_are_named(self):
        self.without("ninja")
        shutil.rmtree(self.root / "usr/include/fmt")
        self.tool("sudo", "exit 1")
        names = "ninja-build libfmt-dev"
        missing = "setup: these packages are missing, and "
        self.assertEqual(self.call(1), [f"{missing}sudo wants a password: {names}. As root: apt-get install {names}"])
        self.without("sudo")
        self.assertEqual(self.call(1), [f"{missing}there is no sudo: {names}. As root: apt-get install {names}"])
        self.tool("id", "echo 0")
        self.tool("apt-get", "exit 100")
        self.assertEqual(self.call(1)[-1], f"setup: apt-get update failed; still missing: {names}")
        self.without("apt-get")
        self.assertEqual(self.call(1), [f"{missing}there is no apt-get; install the like of them: {names}"])

    def test_nobody_is_asked_for_a_password_for_optional_packages(self):
        self.without("ccache", "mold", "h5dump")
        self.tool("sudo", f"echo sudo \"$@\" >>'{self.log}'\nexit 1")
        self.assertEqual(self.call(), [])
        self.assertEqual(self.log.read_text(), "sudo -n true\n")
        self.tool("sudo", '[[ $1 != -n ]] || shift\n"$@"')
        self.assertEqual(self.call(), [f"Installing packages: {OPTIONAL}"])
        self.assertEqual(self.calls("apt-get")[-1], INSTALL + OPTIONAL)

    def test_optional_packages_that_cannot_be_had_are_tried_once(self):
        self.without("ccache", "mold", "h5dump")
        self.tool("id", "echo 0")
        self.tool("apt-get", f"echo apt-get >>'{self.log}'\nexit 100")
        said = ["Installing packages", "setup: apt-get update failed; still missing", "Going on without"]
        self.assertEqual(self.call(), [f"{words}: {OPTIONAL}" for words in said])
        self.assertEqual(self.call(), [])
        self.assertEqual(self.calls("apt-get"), ["apt-get"])

    def test_optional_packages_do_not_fail_needed_ones(self):
        self.without("ninja", "mold")
        self.tool("id", "echo 0")
        self.tool("apt-get", f"echo apt-get \"$@\" >>'{self.log}'\n[[ $* != *mold* ]]")
        self.assertEqual(self.call()[-1], "Going on without: mold")

    def test_conda_counts_when_it_holds_all_that_the_system_lacks_some_of(self):
        conda = self.root / "conda"
        for header in HEADERS[:-1]:
            self.write("conda/include/" + header.replace("hdf5/serial/", ""))
        self.write("conda/include/catch2/catch_all.hpp")
        self.assertEqual(self.call(CONDA_PREFIX=str(conda)), [])
        self.assert_found(self.site / "torch", self.root / "bin/python3")
        shutil.rmtree(self.root / "usr/include/fmt")
        self.assertEqual(self.call(CONDA_PREFIX=str(conda)), [f"Libraries: all of them from {conda}, since the system lacks some"])
        self.assert_found(self.site / "torch", self.root / "bin/python3", conda)
        self.assertEqual(self.log.read_text(), "")
        # Two places are not mixed.
        shutil.rmtree(conda / "include/nlohmann")
        self.without("sudo")
        self.assertEqual(self.call(1, CONDA_PREFIX=str(conda)), [
            "setup: these packages are missing, and there is no sudo: libfmt-dev. As root: apt-get install libfmt-dev. "
            "Or let conda hold all of them: conda install -c conda-forge nlohmann_json"])

    def test_a_prefix_of_cmake_counts(self):
        for header in ("fmt", "spdlog"):
            shutil.move(self.root / "usr/include" / header, self.root / "own" / header / "include" / header)
        self.assertEqual(self.call(CMAKE_PREFIX_PATH=f"{self.root}/own/fmt:{self.root}/own/spdlog"), [])
        self.without("sudo")
        said = self.call(1, CPATH=f"{self.root}/own/fmt/include")[0]  # CMake does not look there
        self.assertIn("libfmt-dev libspdlog-dev", said)


class Modules(Setup):
    PYTHON = "Installing for Python: numpy h5py matplotlib xarray netCDF4"
    TORCH = "Installing LibTorch 2.11.0 for the CPU (1.3 GB)"

    def venv(self, name=""):
        return self.root / ".cache/palimpsest/venv" / name

    def test_what_is_missing_comes_into_a_virtual_environment_once(self):
        self.assertEqual(self.call(), [self.PYTHON, self.TORCH])
        self.assert_found(self.venv("site/torch"), self.venv("bin/python"))
        self.assertEqual(self.call(), [])
        self.assertEqual(len(self.calls("pip")), 2)

    def test_cuda_is_asked_for_where_a_compiler_fits(self):
        self.tool("nvcc", "echo Cuda compilation tools, release 12.4, V12.4.1")
        other = "The CUDA compiler is version 12; torch 2.11.0 is built for CUDA 13: building without CUDA"
        self.assertEqual(self.call(), [other, self.PYTHON, self.TORCH])
        self.tool("nvcc", "echo Cuda compilation tools, release 13.0, V13.0.88")
        self.assertEqual(self.call(PALIMPSEST_CUDA="OFF"), [])
        self.assertEqual(self.call(), ["Installing LibTorch 2.11.0 with CUDA (4.7 GB)"])
        self.assertEqual(self.call(), [])

    def test_the_environment_does_not_say_what_pip_does(self):
        self.call(PIP_USER="1", PIP_REQUIRE_HASHES="1", PIP_TARGET="/elsewhere", PIP_PREFIX="/elsewhere", PIP_NO_DEPS="1",
                  PIP_PYTHON="python2", PIP_INDEX_URL="https://mirror", PIP_CERT="/cert", PIP_PROXY="proxy")
        said = {line for line in self.log.read_text().splitlines() if line.startswith("PIP_")}
        self.assertEqual(said, {"PIP_USER=no", "PIP_REQUIRE_HASHES=no", "PIP_INDEX_URL=https://mirror", "PIP_CERT=/cert",
                                "PIP_PROXY=proxy"})

    def test_modules_of_another_python_do_not_count(self):
        for name in MODULES:
            self.module("other", name)
        self.torch("other/torch")
        self.call(PYTHONPATH=f"{self.root}/other", PYTHONHOME="/nowhere")
        self.assert_found(self.venv("site/torch"), self.venv("bin/python"))

    def test_a_module_that_cannot_be_imported_is_not_taken(self):
        self.modules()
        self.torch("site/torch")
        self.module("site", "h5py", 'raise ValueError("numpy.dtype size changed\\nExpected 96 from C header")')
        why = "h5py: numpy.dtype size changed"
        self.assertEqual(self.call(), [f"Not taken: python3, which cannot import {why}", self.PYTHON])
        self.assert_found(self.site / "torch", self.venv("bin/python"))
        python = f"{self.root}/bin/python3"
        needs = f"setup: PALIMPSEST_PYTHON={python} cannot be used (numpy, h5py and matplotlib are needed): "
        self.assertEqual(self.call(1, PALIMPSEST_PYTHON=python), [needs + why])
        self.module("site", "h5py", "import os\nos._exit(139)")
        crash = f"{python} cannot be started, or crashes when it imports numpy h5py matplotlib"
        self.assertEqual(self.call(1, PALIMPSEST_PYTHON=python), [needs + crash])

    def test_what_is_given_is_written_whole(self):
        self.modules()
        self.torch("tree/my/torch")
        (self.root / "tree/my/python").symlink_to(self.root / "bin/python3")
        for python, found in (("my/python", "tree/my/python"), ("python3", "bin/python3")):
            self.assertEqual(self.call(PALIMPSEST_TORCH="my/torch", PALIMPSEST_PYTHON=python), [])
            self.assert_found(self.root / "tree/my/torch", self.root / found)

    def test_a_torch_that_cannot_be_used_is_not_taken(self):
        self.modules()
        torch = self.torch("site/torch", "2.4")
        fault = f"LibTorch 2.4 in {torch} is too old: 2.5 or later is needed"
        self.assertEqual(self.call(), [f"Not taken from python3: {fault}", self.TORCH])
        self.assert_found(self.venv("site/torch"), self.root / "bin/python3")
        self.assertEqual(self.call(1, PALIMPSEST_TORCH=str(torch)), [f"setup: PALIMPSEST_TORCH: {fault}"])
        self.torch("site/torch", "2.5", abi="_ZN3c105ErrorC1ESs")
        self.assertEqual(self.call(), [f"Not taken from python3: LibTorch in {torch} is built with the old C++ string ABI: take a torch "
                                       'wheel of 2.6 or later, or one of the "cxx11 ABI"'])
        self.torch("site/torch", "2.5")
        self.tool("ldd", f"[[ $1 == {torch}/* ]] && printf '\\tlibcudart.so.13 => not found\\n\\tlibc.so.6 => /lib (0x1)\\n'")
        self.assertEqual(self.call(), [f"Not taken from python3: LibTorch in {torch} cannot be loaded, it misses: libcudart.so.13"])
        fault = "'/nowhere' holds no LibTorch: include/ or lib/libtorch_cpu.so is missing"
        self.assertEqual(self.call(1, PALIMPSEST_TORCH="/nowhere"), [f"setup: PALIMPSEST_TORCH: {fault}"])

    def test_a_virtual_environment_that_broke_is_made_anew(self):
        self.call()
        breaks = {"its python3 went": lambda: (self.venv() / "bin/python").unlink(),
                  "its python3 was replaced": lambda: shutil.rmtree(self.venv() / "site"),
                  "a module broke": lambda: (self.venv() / "site/h5py/__init__.py").write_text("import nothing_of_this_name\n"),
                  "a set-up was killed": lambda: (self.venv() / ".filling").touch(),
                  "torch lost a library": lambda: (self.venv() / "site/torch/lib/libtorch_cpu.so").unlink()}
        for name, damage in breaks.items():
            with self.subTest(name):
                damage()
                self.assertEqual(self.call(), [self.PYTHON, self.TORCH])
                self.assertEqual(self.call(), [])

    def test_what_pip_installed_must_work(self):
        self.module("wheels/modules", "h5py", "import nothing_of_this_name")
        self.assertEqual(self.call(1)[-1], f"setup: pip installed python into {self.venv()}, but it cannot be used: "
                                           "h5py: No module named 'nothing_of_this_name'")
        self.module("wheels/modules", "h5py")
        self.assertEqual(len(self.call()), 2)

    def test_a_cache_without_locks(self):
        self.tool("flock", "echo 'flock: 9: Function not implemented' >&2\nexit 71")
        said = self.call()
        unlocked = f"Files in {self.root}/.cache/palimpsest cannot be locked: no other set-up must run beside this one"
        self.assertEqual(said, ["flock: 9: Function not implemented", unlocked, self.PYTHON, self.TORCH])
        self.assert_found(self.venv("site/torch"), self.venv("bin/python"))


class Gates(Setup):
    """clang-format and clang-tidy, which only who runs the tests needs."""

    TOOLS = "clang-format", "clang-tidy"
    INSTALLED = [f"Installing {tool} 14.0.6" for tool in TOOLS]

    def setUp(self):
        super().setUp()
        self.modules()
        self.torch("site/torch")
        for tool in self.TOOLS:
            self.wheel(tool)

    def wheel(self, tool, version="14.0.6"):
        self.write(f"wheels/{tool}", f"#!{shutil.which('bash')}\necho 'LLVM version {version}'\n", 0o755)

    def test_only_who_asks_gets_them_and_once(self):
        self.assertEqual(self.call(), [])
        self.assertEqual(self.call(0, "--gates"), self.INSTALLED)
        self.assertEqual([line.split()[-2:] for line in self.calls("pip")], [["--only-binary=:all:", f"{tool}==14.0.6"] for tool in self.TOOLS])
        self.assertEqual(self.call(0, "--gates"), [])
        self.assert_found(self.site / "torch", self.root / "bin/python3")

    def test_those_on_the_path_count_in_their_version(self):
        self.tool("clang-format", "echo Debian clang-format version 14.0.0")
        self.tool("clang-tidy", "echo LLVM version 19.1.7")
        self.assertEqual(self.call(0, "--gates"), self.INSTALLED[1:])
        shutil.rmtree(self.root / ".cache")
        self.tool("clang-tidy-14", "echo LLVM version 14.0.6")
        self.assertEqual(self.call(0, "--gates"), [])

    def test_one_that_cannot_be_had_stops_nothing(self):
        venv = self.root / ".cache/palimpsest/venv"
        (self.root / "wheels/clang-format").unlink()
        self.wheel("clang-tidy", "15.0.0")
        for _ in range(2):
            self.assertEqual(self.call(0, "--gates"), [
                self.INSTALLED[0], f"Going on without: pip could not install clang-format-14.0.6 into {venv}", self.INSTALLED[1],
                f"Going on without: pip installed clang-tidy-14.0.6 into {venv}, but it cannot be used: it is not of this version"])
        self.wheel("clang-format")
        self.wheel("clang-tidy")
        self.assertEqual(self.call(0, "--gates"), self.INSTALLED)

    def test_another_option_is_an_error(self):
        self.assertEqual(self.call(2, "--gate"), ["usage: scripts/setup.sh [--gates]"])


class Quoting(Setup):
    def test_names_of_folders_reach_the_shell_and_cmake(self):
        self.modules()
        torch = self.torch("Ada's folder/of \"$HOME\" & torch")
        self.assertEqual(self.call(PALIMPSEST_TORCH=str(torch)), [])
        self.assert_found(torch, self.root / "bin/python3")
        sourced = subprocess.run(["bash", "-c", 'source build/setup.env && printf %s "$PALIMPSEST_TORCH"'], cwd=self.root / "tree",
                                 capture_output=True, text=True, check=True)
        self.assertEqual(sourced.stdout, str(torch))
        self.write("tree/CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(tree LANGUAGES NONE)\n"
                   f"include({SOURCE}/scripts/cmake/Setup.cmake)\nforeach(name TORCH PYTHON PREFIX)\n"
                   "  message(STATUS \"${name}=${PALIMPSEST_${name}}\")\nendforeach()\n")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PALIMPSEST_")}
        cases = ([], {}, torch), ([], {"PALIMPSEST_TORCH": "/env"}, "/env"), (["-DPALIMPSEST_TORCH=/opt"], {}, "/opt")
        for options, extra, expected in cases:
            shutil.rmtree(self.root / "tree/b", ignore_errors=True)
            done = subprocess.run(["cmake", "-S", ".", "-B", "b", *options], cwd=self.root / "tree", env={**environment, **extra},
                                  capture_output=True, text=True, check=True)
            self.assertIn(f"-- TORCH={expected}\n-- PYTHON={self.root}/bin/python3\n-- PREFIX=\n", done.stdout)


if __name__ == "__main__":
    unittest.main()
