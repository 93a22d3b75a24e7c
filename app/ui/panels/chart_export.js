// Export of charts; included after chart.js.

// A pen with the canvas methods used by the charts, which writes SVG.
class SvgPen {
  constructor() {
    Object.assign(this, { parts: [], path: "", dash: [], fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, textAlign: "left", globalAlpha: 1, font: FONT });
    this.ruler = document.createElement("canvas").getContext("2d");
  }

  point(x, y) { return `${+x.toFixed(2)} ${+y.toFixed(2)}`; }
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${this.point(x, y)}`; }
  lineTo(x, y) { this.path += `L${this.point(x, y)}`; }
  arc(x, y, r) { this.path += `M${this.point(x - r, y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; }
  setLineDash(dash) { this.dash = dash; }
  measureText(text) { this.ruler.font = this.font; return this.ruler.measureText(text); }
  add(name, attributes, text = "") {
    const faint = this.globalAlpha < 1 ? { opacity: this.globalAlpha } : {};
    const written = Object.entries({ ...attributes, ...faint }).map(([key, value]) => ` ${key}="${escaped(value)}"`).join("");
    this.parts.push(`<${name}${written}>${escaped(text)}</${name}>`);
  }

  stroke() {
    const dashed = this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {};
    if (this.path) this.add("path", { d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, ...dashed });
  }

  fill() { if (this.path) this.add("path", { d: this.path, fill: this.fillStyle }); }
  fillRect(x, y, width, height) { this.add("rect", { x: +x.toFixed(2), y: +y.toFixed(2), width: +width.toFixed(2), height: +height.toFixed(2), fill: this.fillStyle }); }
  strokeRect(x, y, width, height) {
    this.add("rect", { x: +x.toFixed(2), y: +y.toFixed(2), width: +width.toFixed(2), height: +height.toFixed(2), fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth });
  }

  fillText(text, x, y) {
    const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign];
    this.add("text", { x: +x.toFixed(2), y: +y.toFixed(2), dy: "0.35em", fill: this.fillStyle, "text-anchor": anchor }, text);
  }

  drawImage(source, sx, sy, sw, sh, x, y, width, height) {
    const part = document.createElement("canvas");
    Object.assign(part, { width: sw, height: sh });
    part.getContext("2d").drawImage(source, sx, sy, sw, sh, 0, 0, sw, sh);
    this.add("image", { x, y, width, height, href: part.toDataURL(), "image-rendering": "pixelated", preserveAspectRatio: "none" });
  }
}

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const MARGIN = 16, LINE = 15, EXPORT_SCALE = 2;

// Caption of a chart as lines of text, from {model: ..., method: ..., knobs: ..., seed: ..., machine: ...}.
const linesOf = (made) => Object.entries(made).filter(([, text]) => text !== "" && text !== null && text !== undefined).map(([name, text]) => `${name}: ${text}`);

// Breaks a text into lines of at most a width.
function wrapText(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (pen.measureText(longer).width <= width || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

const metadata = (found) => `<title>${escaped(found.title)}</title><metadata>${escaped(JSON.stringify({ ...found.made, ...found.more }))}</metadata>`;

// The buttons SVG, PNG and CSV in a chart's header. chart(): {name, title, figures: [{title, width, height, draw(page)}], rows: [header, ...], made, more}
// made: caption, also in the SVG's metadata and the CSV; more: only in these two; pictures: makes SVG and PNG of Plotly's charts
function exports(header, chart, pictures = {}) {
  const style = () => getComputedStyle(header);
  const layout = (pen, found) => {
    const width = Math.max(...found.figures.map((f) => f.width)) + 2 * MARGIN, foot = wrapText(pen, linesOf(found.made).join(" · "), width - 2 * MARGIN);
    const height = found.figures.reduce((sum, f) => sum + f.height + 2 * LINE, 0) + 3 * MARGIN + LINE * (foot.length + 1);
    return { width, height, foot };
  };
  const render = (pen, found, { width, height, foot }, shift) => {
    const own = style(), page = paper(pen, width, height, own);
    pen.fillStyle = own.getPropertyValue("--ft-page").trim();
    pen.fillRect(0, 0, width, height);
    write(pen, found.title, MARGIN, MARGIN + 4, page.text);
    let top = MARGIN + LINE;
    for (const figure of found.figures) {
      if (figure.title) write(pen, figure.title, MARGIN, top + LINE, page.muted);
      shift(MARGIN, top + 2 * LINE, () => figure.draw(paper(pen, figure.width, figure.height, own)));
      top += figure.height + 2 * LINE;
    }
    foot.forEach((line, i) => write(pen, line, MARGIN, top + MARGIN + (i + 0.5) * LINE, page.muted));
  };
  const files = {
    svg(found) {
      const pen = new SvgPen(), size = layout(pen, found);
      render(pen, found, size, (x, y, draw) => { pen.parts.push(`<g transform="translate(${x} ${y})">`); draw(); pen.parts.push("</g>"); });
      const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${size.width}" height="${size.height}" viewBox="0 0 ${size.width} ${size.height}" font-family="IBM Plex Sans, Helvetica, Arial, sans-serif" font-size="11">`;
      return new Blob([`${head}${metadata(found)}${pen.parts.join("\n")}</svg>\n`], { type: "image/svg+xml" });
    },
    png(found) {
      const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
      pen.font = FONT;
      const size = layout(pen, found);
      canvas.width = size.width * EXPORT_SCALE;
      canvas.height = size.height * EXPORT_SCALE;
      pen.scale(EXPORT_SCALE, EXPORT_SCALE);
      render(pen, found, size, (x, y, draw) => { pen.save(); pen.translate(x, y); draw(); pen.restore(); });
      return new Promise((done) => canvas.toBlob(done, "image/png"));
    },
    csv(found) {
      return new Blob([[...linesOf({ ...found.made, ...found.more }).map((line) => `# ${line.replaceAll("\n", " ")}`), ...found.rows.map(csvLine)].join("\n") + "\n"], { type: "text/csv" });
    },
    ...pictures,
  };
  const box = node("span", "", { className: "ft-exports" });
  for (const kind of Object.keys(files)) {
    const button = node("button", kind.toUpperCase(), { type: "button" });
    button.dataset.save = kind;
    button.addEventListener("click", async () => {
      const found = chart();
      save(await files[kind](found), `foretoken-${found.name}.${kind}`);
    });
    button.setAttribute("aria-label", `Save the chart as ${kind.toUpperCase()}`);
    box.append(button);
  }
  header.append(box);
}
