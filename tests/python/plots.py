"""What the tests of scripts/plot.py share: a sweep of believable curves, written once a process, and the command as they call it."""

import atexit
import contextlib
import io
import os
import shutil
import struct
import sys
import tempfile

SOURCE = os.environ.get("PALIMPSEST_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(SOURCE, "scripts"), os.path.join(SOURCE, "tests", "python")]

import plot
import synthetic

folder = tempfile.mkdtemp(prefix="palimpsest-plot-")
atexit.register(shutil.rmtree, folder)
sweep = os.path.join(folder, "sweep")
synthetic.write_sweep(sweep)


def call(*arguments):
    """(exit code, stdout, stderr) of the command."""
    out, err = io.StringIO(), io.StringIO()
    plot.start_drawing().close("all")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = plot.main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


def drawn(kind, *arguments):
    """The figure itself, laid out."""
    plot.start_drawing().close("all")
    with contextlib.redirect_stderr(io.StringIO()):
        options = plot.parse([*map(str, arguments), "--kind", kind])
        plot.settle(options)
        figure, _ = plot.picture(options)
    figure.draw_without_rendering()
    return figure


def png_size(path):
    with open(path, "rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


def places(axis):
    return [text.get_text() for text in axis.get_xticklabels()]


def legend(figure):
    return [text.get_text() for axis in figure.axes if axis.get_legend() for text in axis.get_legend().get_texts()]


def convs(*kernels):
    return "[" + ", ".join([*(f"{{mixer: base_conv, kernel: {kernel}}}" for kernel in kernels), "softmax"]) + "]"
