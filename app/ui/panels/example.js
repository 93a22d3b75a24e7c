// Shows the example, which the page's head has requested, on a page that is about to show no other race, and plays it.
const isSide = ([panel]) => panel.startsWith("canvas-");
const drawExample = ([panel, value]) => emit("show", { panel, value });
const frameDrawn = () => new Promise(requestAnimationFrame);
window.exampleValues?.then((values) => whenThere("#canvas-fast .ft-card[data-side]", async () => {
  await null; // the panels after this one have their scripts, too
  const panels = Object.entries(values);
  if (!panels.length || document.querySelector(".ft-card:not([data-state=empty])")) return;
  panels.filter(isSide).forEach(drawExample);
  emit("play", null, scope);
  for (const each of panels) { // one a frame: the sides are moving
    await frameDrawn();
    if (!isSide(each)) drawExample(each);
  }
}));
