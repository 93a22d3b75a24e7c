// Notes when the page is ready, when its example moves, when a run's first pixels are there, and when it changes: in milliseconds since the page was asked for.
(() => {
  const seen = window.foretokenSeen = { ready: null, moving: null, clicked: null, first: null, updates: [], ended: null, begun: false };
  const painted = (note) => requestAnimationFrame(() => requestAnimationFrame(note)); // when the next frame is on the screen
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.offsetParent);
  const FACES = ["plainFaces", "acceleratedFaces", "plainGhosts", "acceleratedGhosts"];
  const meshes = () => shown(".ft-mesh[data-state=running]").filter(({ dataset }) => FACES.some((name) => Number(dataset[name]) > 0));
  const pictures = () => shown(".ft-card[data-state=running]").filter(({ dataset }) => Number(dataset.tokens) > 0);

  const ready = new MutationObserver(() => {
    if (!document.querySelector("#canvas-fast .ft-card[data-side]") || !document.querySelector("#knobs .ft-knob")) return;
    ready.disconnect();
    painted((now) => { seen.ready = now; });
  });
  ready.observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-side"] });

  let before; // the seconds on the accelerated side of the example
  requestAnimationFrame(function look(now) {
    const own = document.querySelector("#canvas-fast .ft-card")?.innerText.match(/\d+\.\d\d/)?.[0];
    if (own && before && own !== before) seen.moving = now;
    else if (seen.clicked === null) requestAnimationFrame(look);
    before ??= own;
  });

  function begins() {
    if (seen.clicked === null || seen.first !== null) return;
    seen.first = 0;
    painted((now) => { seen.first = now; });
  }

  window.addEventListener("click", ({ target }) => {
    if (!target.closest?.("button.ft-go.primary, .ft-fork-go")) return;
    Object.assign(seen, { clicked: performance.now(), first: null, updates: [], ended: null, begun: false });
  }, true);
  window.addEventListener("foretoken:picture", begins);
  window.addEventListener("foretoken:running", ({ detail }) => { // with every update of a run, to its tab
    if (seen.clicked === null || seen.ended !== null) return;
    requestAnimationFrame(() => {
      if (meshes().length) begins();
      if (meshes().length || pictures().length) seen.updates.push(performance.now());
    });
    if (detail) seen.begun = true;
    else if (seen.begun) painted((now) => { seen.ended ??= now; });
  }, true);
})();
