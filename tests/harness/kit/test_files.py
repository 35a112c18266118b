"""Files that other programs read."""

from __future__ import annotations

from PIL import Image

from harness.kit.files import write_picture


def test_figures_have_the_style_of_all_pictures(tmp_path):
    """No frame, small type, the resolution of a paper, the same bytes each time."""
    seen = []

    def draw(figure):
        axes = figure.add_subplot()
        axes.plot([1, 2], [3, 5], label="a")
        seen.append((axes.spines.top.get_visible(), axes.legend().get_frame_on(), axes.title.get_fontweight()))

    for name in ("a.png", "b.png"):
        write_picture(tmp_path / name, draw)
    assert seen == [(False, False, "bold")] * 2
    with Image.open(tmp_path / "a.png") as picture:
        assert round(picture.info["dpi"][0]) == 150
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
