"use strict";
let token = "";
const at = (id) => document.getElementById(id);
function cell(row, content, name) {
  const td = row.insertCell();
  if (content instanceof Node) td.append(content);
  else td.textContent = content === null || content === undefined ? "–" : String(content);
  if (name) td.className = name;
  return td;
}
function mood(state) {
  if (["alive", "running", "succeeded", "finishing"].includes(state)) return "good";
  if (["down", "failed", "suspect", "paused"].includes(state)) return "bad";
  return "weak";
}
function curve(losses) {
  const points = (losses || []).filter((x) => x !== null);
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  if (points.length > 1) {
    const low = Math.min(...points), high = Math.max(...points), span = high - low || 1;
    const line = document.createElementNS(ns, "polyline");
    line.setAttribute("points", points.map((y, i) =>
      `${(100 * i) / (points.length - 1)},${19 - (18 * (y - low)) / span}`).join(" "));
    svg.append(line);
  }
  return svg;
}
function bar(job) {
  const progress = document.createElement("progress");
  progress.max = job.steps || 1;
  progress.value = job.step || 0;
  return progress;
}
function show(s) {
  const c = s.cluster;
  at("summary").textContent = `${c.node} of ${c.cluster} · ${s.ready ? "ready" : "not ready"} · ` +
    (c.leader ? `leader ${c.leader}` : "no leader") + ` · term ${c.term} · ${c.alive} of ${c.voters} voters alive`;
  at("summary").className = s.ready && c.healthy ? "good" : "bad";
  const nodes = at("nodes"), jobs = at("jobs"), checks = at("checks");
  nodes.replaceChildren(); jobs.replaceChildren(); checks.replaceChildren();
  for (const n of s.nodes) {
    const row = nodes.insertRow();
    cell(row, n.name + (n.leader ? " (leader)" : ""));
    cell(row, n.state, mood(n.state)); cell(row, n.role); cell(row, n.device);
    cell(row, n.job); cell(row, n.step, "n");
    cell(row, n.round_trip_ms === null ? null : n.round_trip_ms.toFixed(2) + " ms", "n");
  }
  for (const j of [...s.jobs].reverse()) {
    const row = jobs.insertRow();
    cell(row, j.job, "n"); cell(row, j.name);
    cell(row, j.state + (j.reason ? ": " + j.reason : ""), mood(j.state));
    cell(row, bar(j)); cell(row, j.steps ? `${j.step} / ${j.steps}` : j.step, "n");
    cell(row, j.loss === null ? null : j.loss.toPrecision(6), "n");
    cell(row, j.epoch, "n"); cell(row, curve(j.losses));
  }
  for (const k of s.checks) {
    const row = checks.insertRow();
    cell(row, k.name); cell(row, k.state, k.state === "ok" ? "good" : "bad");
    cell(row, k.text + (k.hint ? " — " + k.hint : ""));
  }
  at("main").hidden = false;
}
async function ask() {
  try {
    const answer = await fetch("api/v1/status", token ? { headers: { Authorization: "Bearer " + token } } : {});
    if (answer.status === 401) {
      at("login").hidden = false;
      at("summary").textContent = "a token is needed: the content of http.token_file";
      return;
    }
    at("login").hidden = true;
    show(await answer.json());
  } catch (error) {
    at("summary").textContent = "no answer from the daemon: " + error.message;
    at("summary").className = "bad";
  }
  setTimeout(ask, 2000);
}
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  ask();
});
ask();
