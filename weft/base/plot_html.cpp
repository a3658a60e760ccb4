// The plot as a page: SVG drawn here, and a little JavaScript that reads values off it.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/plot.h"
#include "weft/base/plot_scale.h"

namespace weft {
namespace {

// The SVG's coordinates: the plot lies between these margins, the labels outside.
constexpr double kWidth = 900, kHeight = 430, kLeft = 64, kRight = 884, kTop = 16, kBottom = 376;

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --back: #ffffff; --ink: #1c2430; --soft: #66707e; --rule: #e3e7ec; --card: #f6f8fa;
  --c0: #2563eb; --c1: #d9630b; --c2: #7c3aed; --c3: #0f8a5f; --c4: #be185d; --c5: #0e7490; }
@media (prefers-color-scheme: dark) { :root { --back: #12161c; --ink: #e6eaf0; --soft: #98a2b0; --rule: #2a313b;
  --card: #1a2028; --c0: #6ea0ff; --c1: #ff9d4d; --c2: #b794ff; --c3: #4fd1a1; --c4: #ff7eb6; --c5: #5fd0e6; } }
body { margin: 2.5rem auto; max-width: 940px; padding: 0 1.25rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.45rem; margin: 0 0 1rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.raw { fill: none; stroke-width: 1; opacity: .28; } .thin { fill: none; stroke-width: 1.2; opacity: .6; }
.level { stroke: var(--soft); stroke-width: 1.4; stroke-dasharray: 6 5; } svg .level-name { fill: var(--ink); }
#cursor { stroke: var(--soft); visibility: hidden; } #plot { position: relative; }
#values { position: absolute; top: 12px; pointer-events: none; visibility: hidden; background: var(--card);
  border: 1px solid var(--rule); border-radius: 6px; padding: .35rem .6rem; font-size: 13px; white-space: nowrap; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; padding: .4rem 0 0 4rem; color: var(--soft); }
.key { display: inline-block; width: 20px; height: 3px; vertical-align: middle; margin-right: .45rem; border-radius: 2px; }
.key.mark { width: 9px; height: 9px; border-radius: 50%; }
.key.dash { height: 0; border-radius: 0; border-top: 2px dashed var(--soft); }
table { border-collapse: collapse; } td { padding: .25rem 1.5rem .25rem 0; border-bottom: 1px solid var(--rule); }
td:first-child { color: var(--soft); } td:last-child { font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; padding: 1rem; font: 14px/1.6 ui-serif, Georgia, serif; }
)css";

// `curves` holds for each curve a list of [x, y, position of x in the SVG].
constexpr const char* kScript = R"js(
const plot = document.getElementById("plot"), svg = plot.querySelector("svg"), values = document.getElementById("values");
const cursor = document.getElementById("cursor"), names = [...document.querySelectorAll(".legend .curve")];
const digits = v => Math.abs(v) >= 1e5 ? v.toLocaleString("en") : String(+v.toPrecision(5));
svg.addEventListener("mousemove", event => {
  const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * width / box.width;
  const nearest = curves.map(points => points.reduce((best, p) => !best || Math.abs(p[2] - x) < Math.abs(best[2] - x) ? p : best, null));
  const first = nearest.filter(p => p).sort((a, b) => Math.abs(a[2] - x) - Math.abs(b[2] - x))[0];
  if (!first) return;
  cursor.setAttribute("x1", first[2]); cursor.setAttribute("x2", first[2]);
  values.replaceChildren();
  const row = text => { const div = document.createElement("div"); div.textContent = text; values.append(div); return div; };
  row(values.dataset.x + " " + digits(first[0]));
  nearest.forEach((p, i) => { if (p && Math.abs(p[2] - first[2]) < 12) row(names[i].textContent.trim() + " " + digits(p[1])).style.color = `var(--c${i % 6})`; });
  const at = first[2] * box.width / width;
  values.style.left = at < box.width / 2 ? at + 14 + "px" : "";
  values.style.right = at < box.width / 2 ? "" : box.width - at + 14 + "px";
  cursor.style.visibility = values.style.visibility = "visible";
});
svg.addEventListener("mouseleave", () => { cursor.style.visibility = values.style.visibility = "hidden"; });
)js";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

double x_at(const Scales& scales, double x) { return kLeft + scales.x.position(x) * (kRight - kLeft); }
double y_at(const Scales& scales, double y) { return kBottom - scales.y.position(y) * (kBottom - kTop); }

std::string line(double x1, double y1, double x2, double y2, const char* css_class) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1,
                     x2, y2, css_class);
}

std::string label(double x, double y, const char* anchor, const std::string& text,
                  const char* css_class = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y,
                     anchor, css_class, escaped(text));
}

std::string polyline(const Points& points, const Scales& scales, size_t curve, const char* css_class) {
  std::string text =
      fmt::format("<polyline class=\"{}\" stroke=\"var(--c{})\" points=\"", css_class, curve % 6);
  for (const auto& [x, y] : points) {
    // Far outside the clipped plot a coordinate only has to stay outside.
    text += fmt::format("{:.1f},{:.1f} ", x_at(scales, x), std::clamp(y_at(scales, y), -1e5, 1e5));
  }
  return text + "\"/>\n";
}

std::string axes(const Plot& plot, const Scales& scales) {
  std::string svg;
  for (const double tick : scales.y.ticks) {
    const double y = y_at(scales, tick);
    svg += line(kLeft, y, kRight, y, "grid") + label(kLeft - 8, y + 4, "end", tick_text(tick));
  }
  for (const double tick : scales.x.ticks) {
    const double x = x_at(scales, tick);
    svg += line(x, kBottom, x, kBottom + 5, "axis") + label(x, kBottom + 20, "middle", tick_text(tick));
  }
  svg += line(kLeft, kBottom, kRight, kBottom, "axis");
  svg += label((kLeft + kRight) / 2, kBottom + 44, "middle", plot.x_label);
  svg +=
      fmt::format("<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                  (kTop + kBottom) / 2, escaped(plot.y_label));
  return svg;
}

std::string drawn_curve(const Curve& curve, size_t index, const Scales& scales) {
  const Points points = line_of(curve, 400);
  std::string svg;
  if (curve.draw == Draw::kSmoothed) svg += polyline(raw_points(curve, 800), scales, index, "raw");
  svg += polyline(points, scales, index, curve.draw == Draw::kMarks ? "thin" : "line");
  if (curve.draw != Draw::kMarks && points.size() > 1) return svg;
  for (const auto& [x, y] : points) {  // a single point has no line to show it
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"var(--c{})\"/>\n", x_at(scales, x),
                       y_at(scales, y), index % 6);
  }
  return svg;
}

std::string drawing(const Plot& plot, const Scales& scales) {
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
                                kHeight, escaped(plot.title));
  svg +=
      fmt::format("<clipPath id=\"inside\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n",
                  kLeft, kTop - 5, kRight - kLeft + 5, kBottom - kTop + 5);
  svg += axes(plot, scales) + "<g clip-path=\"url(#inside)\">\n";
  for (size_t i = 0; i < plot.curves.size(); ++i) svg += drawn_curve(plot.curves[i], i, scales);
  for (const auto& baseline : plot.baselines) {
    if (!std::isfinite(baseline.value)) continue;
    const double y = y_at(scales, baseline.value);
    svg += line(kLeft, y, kRight, y, "level");
    svg += label(kRight - 4, y - 6, "end", fmt::format("{} {:.4g}", baseline.name, baseline.value),
                 "level-name");
  }
  svg += "</g>\n";
  svg += fmt::format("<line id=\"cursor\" y1=\"{}\" y2=\"{}\"/>\n</svg>\n", kTop, kBottom);
  return svg;
}

std::string legend(const Plot& plot) {
  std::string html = "<div class=\"legend\">\n";
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    html += fmt::format(
        "<span class=\"curve\"><i class=\"key{}\" style=\"background: var(--c{})\"></i>{}</span>\n",
        plot.curves[i].draw == Draw::kMarks ? " mark" : "", i % 6, escaped(plot.curves[i].name));
  }
  for (const auto& baseline : plot.baselines) {
    html += fmt::format("<span><i class=\"key dash\"></i>{}</span>\n", escaped(baseline.name));
  }
  return html + "</div>\n";
}

/// The points for the mouse to find, as JavaScript: numbers only.
std::string point_lists(const Plot& plot, const Scales& scales) {
  std::string script = "[";
  for (const auto& curve : plot.curves) {
    script += "[";
    for (const auto& [x, y] : line_of(curve, 400)) {
      script += fmt::format("[{},{:.6g},{:.1f}],", x, y, x_at(scales, x));
    }
    script += "],";
  }
  return script + "]";
}

std::string below(const PlotFacts& facts) {
  std::string html;
  if (!facts.facts.empty()) {
    html += "<h2>The run</h2>\n<table>\n";
    for (const auto& [name, value] : facts.facts) {
      html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(name), escaped(value));
    }
    html += "</table>\n";
  }
  if (!facts.text.empty()) {
    html += fmt::format("<h2>{}</h2>\n<pre>{}</pre>\n", escaped(facts.text_title), escaped(facts.text));
  }
  return html;
}

}  // namespace

std::string html_plot(const Plot& plot, const PlotFacts& facts) {
  const Scales scales = scales_of(plot, 8, 7);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<div id=\"plot\">\n",
      escaped(plot.title), kStyle);
  html += drawing(plot, scales);
  html += fmt::format("<div id=\"values\" data-x=\"{}\"></div>\n</div>\n", escaped(plot.x_label));
  html += legend(plot) + below(facts);
  html += fmt::format("<script>\nconst width = {}, curves = {};{}</script>\n</body>\n</html>\n", kWidth,
                      point_lists(plot, scales), kScript);
  return html;
}

}  // namespace weft
