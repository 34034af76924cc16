"""The commands, put together."""

from cyclopts import App

from cofuse import __version__
from cofuse.cli.batch import batch
from cofuse.cli.compare import compare
from cofuse.cli.demo import demo
from cofuse.cli.evaluate import evaluate
from cofuse.cli.fuse import fuse
from cofuse.cli.learn import learn
from cofuse.cli.operators import operators
from cofuse.cli.simulate import simulate

__all__ = ["app"]

app = App(
    name="cofuse",
    help="Fuse and restore multi-focus picture stacks. Noise levels are in 8-bit grey levels.",
    help_epilogue="Any command takes --debug to show where an error came from.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
)
app.command(fuse)
app.command(batch)
app.command(learn)
app.command(operators)
app.command(simulate)
app.command(evaluate)
app.command(compare)
app.command(demo)
