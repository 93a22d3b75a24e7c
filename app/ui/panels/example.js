// A page that has shown no race of its own, and is about to show none, gets the example.
watch("value", () => {
  const told = Object.entries(props.value || {});
  const own = sessionStorage.getItem("foretoken-race") || new URLSearchParams(location.search).has("run");
  if (own || !told.length || document.querySelector(".ft-card:not([data-state=empty])")) return;
  for (const [panel, value] of told) emit("show", { panel, value });
});
