"""Imported first by scripts that need more than Python itself: where the Python that runs them lacks numpy, h5py or matplotlib, or has one
that cannot be imported (built for another numpy, without its libraries), they start anew with the one that scripts/setup.sh found or
installed (build/setup.env), or with PALIMPSEST_PYTHON of the environment.
"""

import importlib
import os
import sys

NEEDED = ("numpy", "h5py", "matplotlib")


def of_setup():
    """PALIMPSEST_PYTHON of the environment, else of build/setup.env in this checkout; None without either."""
    if os.environ.get("PALIMPSEST_PYTHON"):
        return os.environ["PALIMPSEST_PYTHON"]
    settings = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "setup.env")
    if not os.path.exists(settings):
        return None
    import subprocess  # the file is one of the shell's, quoted as the shell wants it

    found = subprocess.run(["bash", "-c", '. "$1" && printf %s "$PALIMPSEST_PYTHON"', "-", settings], capture_output=True, text=True)
    return found.stdout or None


def problem_of(name):
    """Why a module cannot be used; "" where it can."""
    try:
        importlib.import_module(name)
        return ""
    except ModuleNotFoundError as error:
        return name if error.name == name else f"{name} ({error})"
    except Exception as error:
        return f"{name} that works ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'})"


missing = [problem for name in NEEDED if (problem := problem_of(name))]
if missing:
    python = of_setup()
    if python and not os.environ.get("PALIMPSEST_STARTED_ANEW"):
        os.environ["PALIMPSEST_STARTED_ANEW"] = "1"
        try:
            os.execv(python, [python, *sys.argv])
        except OSError as error:
            sys.exit(f"{os.path.basename(sys.argv[0])}: error: cannot start {python}: {error.strerror}; run scripts/setup.sh")
    sys.exit(f"{os.path.basename(sys.argv[0])}: error: this Python ({sys.executable}) lacks {', '.join(missing)}; "
             "run scripts/setup.sh, which finds or installs one that has them")
