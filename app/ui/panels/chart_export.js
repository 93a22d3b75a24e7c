// Export of charts; included after chart.js.

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

// The buttons PNG and CSV in a chart's header. chart(): {name, title, figures: [{title, width, height, draw(page)}], rows: [header, ...], made, more}
// made: caption, also in the CSV; more: only there; pictures: makes the PNG of Plotly's charts
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
