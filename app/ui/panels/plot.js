// Charts drawn by Plotly, whose script ships with Gradio and loads with the first visible chart. Included after chart.js and chart_export.js.
const BASE = [...document.scripts].find((script) => script.src.includes("/assets/"))?.src ?? document.baseURI;
const plotly = () => (window.foretokenPlotly ??= import(new URL(__PLOTLY__, BASE).href).then(() => window.Plotly));
const LETTER = 6.5, LABEL = 16; // approximate width of a letter and height of a label, in pixels
const REST = 200; // milliseconds between redraws
const CONFIG = { displayModeBar: false, doubleClick: false };

const axis = (page, more) => ({
  gridcolor: page.line, linecolor: page["line-strong"], tickcolor: page["line-strong"], tickfont: { color: page.muted }, title: { font: { color: page.text }, standoff: 10 },
  zeroline: false, fixedrange: true, hoverformat: "", ...more,
});
// A text at a position on the paper or the axes; titles of vertical axes are above them, horizontal.
const note = (text, colour, more) => ({ text, font: { color: colour }, showarrow: false, xref: "paper", yref: "paper", ...more });
const above = (page, text, y = 1) => note(text, page.text, { x: 0, y, xanchor: "left", yanchor: "bottom", xshift: -44, yshift: 8 });
const rule = (colour, more) => ({ type: "line", layer: "below", line: { color: colour, width: 1, dash: "dash" }, ...more });
const upright = (x, colour, more) => rule(colour, { x0: x, x1: x, yref: "paper", y0: 0, y1: 1, ...more });
const level = (y, colour, more) => rule(colour, { y0: y, y1: y, xref: "paper", x0: 0, x1: 1, ...more });
const legendOnly = (name, more) => ({ name, x: [null], y: [null], mode: "lines", ...more });

// Height of Plotly's legend below a chart; if one row is too narrow, its columns are as wide as the widest entry.
function legendRoom(data, width) {
  const wides = data.filter((trace) => trace.name && trace.visible !== false).map((trace) => trace.name.length * LETTER + 50), room = width - 60;
  const fits = wides.reduce((sum, wide) => sum + wide, 0) < room, columns = Math.max(1, Math.floor(room / Math.max(...wides)));
  return 6 + 19 * (fits ? 1 : Math.ceil(wides.length / columns));
}

function withStyle(page, { data, layout }, size) {
  const base = {
    ...size, font: { family: "IBM Plex Sans, system-ui, sans-serif", size: 12, color: page.muted }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 46, r: 14, t: 34, b: 40 }, dragmode: false, hovermode: "closest", hoverdistance: 24, showlegend: true,
    legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom", itemclick: false, itemdoubleclick: false, font: { color: page.muted } },
    hoverlabel: { bgcolor: page.surface, bordercolor: page["line-strong"], align: "left", font: { family: "IBM Plex Sans, system-ui, sans-serif", color: page.text } },
  };
  return { data: data.map((trace) => ({ type: "scatter", mode: "lines", hoverinfo: trace.customdata ? "text" : "skip", ...trace })), layout: { ...base, ...layout } };
}

// A chart in a card. Inspectable marks have the entry's index as customdata and its text as hovertext.
// chart: {count(), say(index), name(), figure(page with its width and colours): {data, layout} or null, act(index), went(index or null), file(): see exports}
function plot(card, chart) {
  const box = card.querySelector(".ft-plot"), output = card.querySelector("output");
  let at = null, going = false, again = false, announce = () => {}, known = null;

  const pageOf = (width) => ({ width, ...coloursOf(getComputedStyle(box)) });

  function point() { // the label of the current entry
    if (!known) return;
    const curve = box.data.findIndex((trace) => trace.customdata?.includes(at));
    if (at === null || curve < 0) window.Plotly.Fx.unhover(box);
    else window.Plotly.Fx.hover(box, [{ curveNumber: curve, pointNumber: box.data[curve].customdata.indexOf(at) }]);
  }

  function go(to, pointed = true) {
    at = to;
    output.textContent = at === null ? "" : chart.say(at).join(" · ");
    chart.went?.(at);
    announce();
    if (pointed) point();
  }

  async function draw() {
    if (at !== null && at >= chart.count()) at = null;
    if (!known || at !== null) go(at, false);
    announce();
    const page = pageOf(box.clientWidth), figure = box.clientWidth && chart.figure(page);
    if (!figure) return;
    if (going) return void (again = true);
    going = true;
    const Plotly = await plotly().catch(() => null);
    if (!Plotly) return void (box.textContent = "This version of Gradio does not include Plotly, so there is no chart.");
    const { data, layout } = withStyle(page, figure, { width: box.clientWidth, height: box.clientHeight });
    layout.margin.b += legendRoom(data, page.width);
    await Plotly.react(box, data, layout, CONFIG);
    if (!known) listen();
    if (at !== null) point();
    box.dataset.drawn = Number(box.dataset.drawn || 0) + 1;
    setTimeout(() => { // values arrive faster than anyone can read
      going = false;
      if (again) { again = false; draw(); }
    }, REST);
  }

  function listen() {
    known = true;
    box.on("plotly_hover", ({ points: [found] }) => { if (found.customdata !== at) go(found.customdata, false); });
    box.on("plotly_unhover", () => { if (!chart.stays && document.activeElement !== box) go(null, false); });
    box.on("plotly_click", ({ points: [found] }) => chart.act?.(found.customdata));
  }

  const picture = async () => {
    const Plotly = await plotly(), found = chart.file(), page = pageOf(920), pen = document.createElement("canvas").getContext("2d");
    pen.font = FONT;
    const { data, layout } = withStyle(page, chart.figure(page), { width: 920, height: found.height || 480 }), foot = wrapText(pen, linesOf(found.made).join(" · "), 880);
    layout.title = { text: found.title, x: 0, xref: "paper", y: 1, yref: "container", yanchor: "top", pad: { t: 14 }, font: { color: page.text, size: 14 } };
    layout.margin = { l: 58, r: 24, t: layout.margin.t + 36, b: layout.margin.b + legendRoom(data, page.width) + LINE * (foot.length + 1) };
    layout.paper_bgcolor = page.page;
    layout.legend.y = (LINE * (foot.length + 1)) / (found.height || 480);
    layout.annotations = [...(layout.annotations || []), note(foot.join("<br>"), page.muted, { x: 0, xshift: -46, xanchor: "left", align: "left", y: 0, yref: "paper", yanchor: "bottom", yshift: 8 - layout.margin.b })];
    const address = await Plotly.toImage({ data, layout }, { format: "png", scale: EXPORT_SCALE });
    return (await fetch(address)).blob();
  };
  announce = readable(box, chart.name, { count: chart.count, at: () => at, go, say: (i) => chart.say(i).join(" · "), act: chart.act });
  exports(card.querySelector("header"), chart.file, { png: picture });
  follow([box], draw);
  return { draw, go, at: () => at };
}
