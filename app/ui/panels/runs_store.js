// Runs stored in this browser's IndexedDB: rows of the table, and the panels' values to show a race again.
const LIMIT = 100; // maximum number of races per kind; the oldest are deleted first
const opened = new Promise((done) => {
  const asked = indexedDB.open("foretoken", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("races", { keyPath: "id" });
  asked.onsuccess = () => done(asked.result);
  asked.onerror = () => done(null); // a private window may have no database; then runs last as long as the page
});
const memory = new Map();

async function transact(mode, act) {
  const database = await opened;
  if (!database) return null;
  return new Promise((done, fail) => {
    const work = database.transaction("races", mode), asked = act(work.objectStore("races"));
    work.oncomplete = () => done(asked?.result);
    work.onerror = work.onabort = () => fail(work.error);
  });
}

const kindOfRace = (race) => race.kind || "image"; // the first version stored only pictures

async function allRaces(kind) {
  const found = (await transact("readonly", (races) => races.getAll())) || [...memory.values()];
  return found.filter((race) => kindOfRace(race) === kind).sort((a, b) => b.when - a.when);
}

async function keepRace(race) {
  memory.set(race.id, race);
  const gone = (await allRaces(kindOfRace(race))).filter((each) => each.id !== race.id).slice(LIMIT - 1);
  await transact("readwrite", (races) => { gone.forEach((each) => races.delete(each.id)); return races.put(race); });
}

async function dropRaces(ids) {
  ids.forEach((id) => memory.delete(id));
  await transact("readwrite", (races) => { ids.forEach((id) => races.delete(id)); });
}
