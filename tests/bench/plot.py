"""Stacked bars as SVG, without a library; PNG by rsvg-convert where it is installed (librsvg2-bin)."""
import html
import os

from stages import run_quietly

COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac", "#2f4b7c",
           "#a05195"]
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 1000, 250, 90, 26, 12, 64


def bar(y, name, parts, scale, colour_of):
    out = ["<text x='%d' y='%d' text-anchor='end'>%s</text>" % (LEFT - 10, y + BAR * 0.68, html.escape(name))]
    x = float(LEFT)
    for stage, ms in parts.items():
        w = ms * scale
        out.append("<rect x='%.1f' y='%d' width='%.2f' height='%d' fill='%s'><title>%s %.1f ms</title></rect>" %
                   (x, y, w, BAR, colour_of[stage], html.escape(stage), ms))
        if w > 34:
            out.append("<text x='%.1f' y='%d' text-anchor='middle' fill='#fff'>%.0f</text>" % (x + w / 2, y + BAR * 0.68, ms))
        x += w
    out.append("<text x='%.1f' y='%d'>%.0f ms</text>" % (x + 6, y + BAR * 0.68, sum(parts.values())))
    return out


def panel(y, title, bars):
    """bars: {name: {stage: ms}}; each panel has a scale of its own."""
    stages = list(dict.fromkeys(stage for parts in bars.values() for stage in parts))
    colour_of = {stage: COLOURS[i % len(COLOURS)] for i, stage in enumerate(stages)}
    scale = (WIDTH - LEFT - RIGHT) / max(1e-9, *(sum(parts.values()) for parts in bars.values()))
    out = ["<text x='10' y='%d' font-weight='bold'>%s</text>" % (y + 16, html.escape(title))]
    y += 26
    for name, parts in bars.items():
        out += bar(y, name, parts, scale, colour_of)
        y += BAR + GAP
    x = LEFT
    for stage in stages:
        w = 26 + 7 * len(stage)
        if x + w > WIDTH:
            x, y = LEFT, y + 18
        out.append("<rect x='%d' y='%d' width='11' height='11' fill='%s'/><text x='%d' y='%d'>%s</text>" %
                   (x, y + 2, colour_of[stage], x + 15, y + 12, html.escape(stage)))
        x += w
    return out, y + 34


def draw(stem, title, panels):
    """panels: {title: bars}; writes STEM.svg and, where that can be, STEM.png. Returns what was done, in words."""
    out, y = ["<text x='10' y='24' font-size='17'>%s</text>" % html.escape(title)], HEAD - 16
    for name, bars in panels.items():
        if bars:
            more, y = panel(y, name, bars)
            out += more
    svg, png = stem + ".svg", stem + ".png"
    with open(svg, "w", encoding="utf-8") as f:
        f.write("<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='DejaVu Sans, sans-serif' font-size='12'>\n"
                "<rect width='100%%' height='100%%' fill='#fff'/>\n%s\n</svg>\n" % (WIDTH, y, "\n".join(out)))
    if run_quietly(["rsvg-convert", "-o", png, svg]) and os.path.exists(png):
        return "%s, %s" % (svg, png)
    return "%s; no PNG: rsvg-convert (Debian: librsvg2-bin) is not there" % svg
