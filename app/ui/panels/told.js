// Before every panel's own script: its value may come from Gradio, or from a "foretoken:show" event, whichever is newer.
const gradio = { props, watch };
let told;
props = new Proxy(gradio.props, {
  get: (given, name) => (name === "value" && told !== undefined ? told : given[name]),
  set: (given, name, value) => { if (name === "value") told = undefined; given[name] = value; return true; },
});
const redraws = [];
watch = (name, draw) => {
  if (name === "value") redraws.push(draw);
  gradio.watch(name, () => { told = undefined; draw(); });
};
window.addEventListener("foretoken:show", (event) => {
  if (event.detail.panel !== __OWN__) return;
  told = event.detail.value;
  redraws.forEach((draw) => draw());
});
