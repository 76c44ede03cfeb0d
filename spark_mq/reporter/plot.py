"""A plot: a figure with a title, for a page and for notebooks; and what all plots have alike: style, axes and names.

matplotlib draws them: an SVG needs no script, so a page of them is small, can be printed, and is shown where scripts
are forbidden.
"""

from __future__ import annotations

import io
import logging
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter, date2num, num2date
from matplotlib.figure import Figure
from PIL import Image

COLOUR, SECOND_COLOUR, GREY, DARK, RED = "#1f6fb2", "#e08214", "#b8b8b8", "#404040", "#c62828"
_VARIABLES = {
    **{COLOUR: "data", SECOND_COLOUR: "second", GREY: "rest", DARK: "soft", RED: "bad"},
    **{"#000000": "soft", "#ffffff": "ground"},
}
"""The variables of a page's style sheet that stand for colours: they are other ones on a dark page."""
FONTS: tuple[str, ...] = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
)
FONTS += ("Microsoft YaHei", "PingFang SC", "Hiragino Sans GB", "Arial Unicode MS", "SimHei", "Droid Sans Fallback")
"""Fonts with Chinese characters, the best first. matplotlib's own font has none."""
_SVG = "{http://www.w3.org/2000/svg}"
_COLOUR = re.compile("(fill|stroke): (#[0-9a-f]{6})")


def _chinese_fonts() -> list[str]:
    """The best of `FONTS` that is installed; empty if none is."""
    if not {*FONTS} & {*font_manager.get_font_names()}:
        # matplotlib keeps a list of fonts from its first run. It lacks fonts that were installed since.
        known = {font.fname for font in font_manager.fontManager.ttflist}
        for file in {*font_manager.findSystemFonts()} - known:
            with suppress(OSError, RuntimeError):  # some kinds of font files cannot be read
                font_manager.fontManager.addfont(file)
    installed = font_manager.get_font_names()
    return [font for font in FONTS if font in installed][:1]


_STYLE: Any = {
    # Only the fonts of this list are tried one after the other; of the list "font.sans-serif" only the first is used.
    "font.family": ["DejaVu Sans", *_chinese_fonts()],
    "text.parse_math": False,  # a name can contain `$`, and is not a formula
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "svg.fonttype": "none",  # a text stays a text
}
matplotlib.rcParams.update(_STYLE)
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # that a font has no bold letters is fine
_FORM: ContextVar[tuple[float, int]] = ContextVar("form", default=(9.0, 30))
"""The width of a figure in inches, and the characters of its longest label."""
_NARROW = (5.0, 16)
_TIME_FORMS = (("2s", "%H:%M:%S.%f"), ("10min", "%H:%M:%S"), ("36h", "%H:%M"), ("10D", "%m-%d %H:%M"))
_DURATIONS = ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


@dataclass(frozen=True)
class Plot:
    """A figure and its title, which is also its text for readers who do not see it."""

    title: str
    figure: Figure

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {"image/png": self.png(), "text/plain": self.title}
        return data, {"image/png": {"alt": self.title}}

    def png(self) -> bytes:
        """The figure as a PNG file. If no font has a character of it, a line below says what to install."""
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            png = _png(self.figure)
        if any("missing from font" in str(one.message) for one in raised):
            note = "The boxes are characters that no font here has. On Debian, install fonts-noto-cjk."
            self.figure.supxlabel(note, fontsize=8, color=DARK)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                png = _png(self.figure)
        return png

    def svg(self, name: str) -> str:
        """The figure as an SVG element without its title; `name`, unique on a page, begins the ids of its parts."""
        self.figure.suptitle("")
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reader's fonts count
            self.figure.savefig(file, format="svg", transparent=True)
        root = ElementTree.fromstring(file.getvalue())
        for child in root.findall(f"{_SVG}metadata"):
            root.remove(child)
        for element in root.iter():
            identity = element.attrib.pop("id", None)
            if identity is not None and element.tag in (f"{_SVG}clipPath", f"{_SVG}path", f"{_SVG}image"):
                element.set("id", f"{name}-{identity}")
            for key, value in element.attrib.items():
                if key == "style":
                    element.set(key, _COLOUR.sub(lambda found: f"{found[1]}: {_themed(found[2])}", value))
                elif "#" in value:
                    element.set(key, value.replace("#", f"#{name}-"))
        for size in ("width", "height"):
            root.attrib.pop(size)
        root.attrib |= {"role": "img", "aria-label": self.title}
        return ElementTree.tostring(root, encoding="unicode")


ElementTree.register_namespace("", _SVG.strip("{}"))
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def _themed(colour: str) -> str:
    return f"var(--{_VARIABLES[colour]})" if colour in _VARIABLES else colour


@contextmanager
def narrow() -> Iterator[None]:
    """A context in which plots are as narrow as a telephone."""
    token = _FORM.set(_NARROW)
    try:
        yield
    finally:
        _FORM.reset(token)


def figure_width() -> float:
    """The width of a figure in inches."""
    return _FORM.get()[0]


def is_wide() -> bool:
    """Whether plots are not `narrow`."""
    return _FORM.get() != _NARROW


def new_figure(title: str, height: float) -> tuple[Figure, Axes]:
    """A figure with axes."""
    width = figure_width()
    figure = Figure(figsize=(width, max(1.6, height)), layout="constrained")
    axes = figure.subplots()
    figure.suptitle("\n".join(textwrap.wrap(title, int(9.3 * width))), x=0.01, horizontalalignment="left")
    return figure, axes


def nothing(title: str) -> Plot:
    """A plot that only says why there is none."""
    figure, axes = new_figure(title, 1.0)
    axes.set_axis_off()
    return Plot(title, figure)


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    small = io.BytesIO()  # 128 colours are enough, and need a third of the bytes
    Image.open(file).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Give the rows their names, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def time_axis(axes: Axes, first: pd.Timestamp, last: pd.Timestamp) -> None:
    """Let the horizontal axis be times in UTC, from the first to the last."""
    span = last - first
    form = next((form for longest, form in _TIME_FORMS if span < pd.Timedelta(longest)), "%Y-%m-%d")
    axes.xaxis.set_major_locator(AutoDateLocator(tz="UTC", minticks=2, maxticks=8 if is_wide() else 3))
    axes.xaxis.set_major_formatter(DateFormatter(form, tz="UTC"))
    if form.endswith("%f"):
        axes.xaxis.set_major_formatter(lambda number, _: f"{num2date(number):{form}}"[:-3])
    axes.set_xlim(date2num(first), date2num(last))
    days = dict.fromkeys([f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}"])
    axes.set_xlabel(f"store time (UTC), {' to '.join(days)}")


def whole_numbers(axis: Any) -> None:
    """Let an axis have whole numbers only."""
    axis.set_major_formatter("{x:,.0f}")
    if axis.get_scale() == "linear":
        axis.get_major_locator().set_params(integer=True)


def duration(millis: float) -> str:
    """A time for people: `3 ms`, `4.9 s`, `22 s`."""
    size, unit = next((one for one in _DURATIONS if millis >= one[0]), _DURATIONS[-1])
    if size == 86_400_000 and millis == size:
        return "1 day"
    digits = 1 if millis / size < 10 and millis % size else 0
    return f"{millis / size:.{digits}f} {unit}"


def percent(part: float, total: float) -> str:
    """A share; a small one is `less than 1 %`, and only all is `100 %`."""
    percent = 100 * part / total
    if 0 < percent < 1:
        return "less than 1 %"
    return f"{min(percent, 99) if part < total else 100:.0f} %"


def short(name: object) -> str:
    """A name of at most 30 characters (16 of a narrow plot), all of which can be seen: its middle is left out."""
    text, longest = printable(str(name)) or "(empty)", _FORM.get()[1]
    if len(text) <= longest:
        return text
    return f"{text[: longest - longest // 3 - 2]}…{text[-(longest // 3 + 1) :]}"


def printable(text: str) -> str:
    """The text with a replacement character for each character that cannot be seen."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
