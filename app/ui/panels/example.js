// Shows the example on a page that has no race and is about to show none, and plays it.
watch("value", () => {
  const panels = Object.entries(props.value || {});
  const own = sessionStorage.getItem("foretoken-race") || new URLSearchParams(location.search).has("run");
  if (own || !panels.length || document.querySelector(".ft-card:not([data-state=empty])")) return;
  for (const [panel, value] of panels) emit("show", { panel, value });
  emit("play", null, scope);
});
