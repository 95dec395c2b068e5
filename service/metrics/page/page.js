// Asks the daemon for its state each second and shows it. All that comes from it is text, set as text: names come from
// clients. Nothing is replaced that is still there, so that nothing flickers and what is marked stays so.
'use strict';

const kEachMs = 1000;
const kMinuteMs = 60000;
const kBarsMax = 500;
const kLanes = 9;
const kFailuresMax = 20;
const kCodes = ['OK', 'CANCELLED', 'UNKNOWN', 'INVALID_ARGUMENT', 'DEADLINE_EXCEEDED', 'NOT_FOUND', 'ALREADY_EXISTS',
  'PERMISSION_DENIED', 'RESOURCE_EXHAUSTED', 'FAILED_PRECONDITION', 'ABORTED', 'OUT_OF_RANGE', 'UNIMPLEMENTED',
  'INTERNAL', 'UNAVAILABLE', 'DATA_LOSS', 'UNAUTHENTICATED'];

const byId = (id) => document.getElementById(id);

// --- text ------------------------------------------------------------------------------------------------------

// 64-bit numbers come as text.
const number = (value) => Number(value ?? 0);

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

function time(us) {
  if (us < 1000) return `${Math.round(us)} us`;
  if (us < 1e6) return `${(us / 1000).toFixed(1)} ms`;
  if (us < 120e6) return `${(us / 1e6).toFixed(1)} s`;
  const minutes = Math.floor(us / 60e6);
  if (minutes < 120) return `${minutes} min`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} days`;
}

// [0, 1, 2, 5] is "0-2, 5".
function ranges(numbers) {
  const parts = [];
  for (const each of numbers) {
    const last = parts[parts.length - 1];
    if (last && last[1] === each - 1) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(', ');
}

// --- elements --------------------------------------------------------------------------------------------------

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAll(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
  return element;
}

function add(parent, tag, attributes = {}, text = '') {
  const element = parent.namespaceURI.endsWith('svg')
    ? document.createElementNS(parent.namespaceURI, tag) : document.createElement(tag);
  setAll(element, attributes);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

// `parent` has as many children `tag` as there are `items`, each as `show(element, item)` makes it.
function showEach(parent, tag, items, show) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, index) => show(parent.children[index] ?? add(parent, tag), item));
}

const showLines = (list, lines) => showEach(list, 'li', lines, setText);
const showRows = (body, rows) =>
  showEach(body, 'tr', rows, (row, cells) => showEach(row, 'td', cells, (cell, text) => setText(cell, String(text))));

// --- state -----------------------------------------------------------------------------------------------------

const cpuBefore = new Map();  // By pid.

// Shares of one core, since the last time.
function cpuShare(pid, cpuMs) {
  const at = performance.now();
  const before = cpuBefore.get(pid);
  cpuBefore.set(pid, { at, cpuMs });
  if (!before || at - before.at < 1) return '';
  return `${Math.max(0, Math.round((100 * (cpuMs - before.cpuMs)) / (at - before.at)))} %`;
}

function showRanks(state) {
  const rows = state.devices.map((device) => [
    device.rank, device.model || device.kind, number(device.pid) || 'none', device.num_threads,
    device.cores.length ? ranges(device.cores) : 'any',
    number(device.pid) ? cpuShare(device.pid, number(device.cpu_ms)) : '', bytes(number(device.resident_bytes)),
    device.error?.message ?? '']);
  showRows(byId('ranks'), rows);
  showLines(byId('troubles'), [
    ...state.failed_devices.map((device) => `${device.kind}:${device.ordinal} is not used: ${device.error?.message}`),
    ...state.lingering.map((worker) => `${worker} was killed and does not end`),
    ...(state.last_failure ? [`last failure: ${state.last_failure}`] : [])]);
}

function showQueue(state) {
  setText(byId('queue'), `${state.queued_runs} runs and ${state.queued_plans} plans wait; ` +
    `${state.requests_under_way} requests are under way on ${state.connections} connections; ` +
    `${state.runs_over} of ${state.runs} runs are over`);
  const rows = state.principals.map((principal) => {
    const runs = (principal.queue?.counts ?? []).reduce((sum, count) => sum + number(count), 0);
    const wait = runs ? time(number(principal.queue.sum_us) / runs) : '';
    return [principal.name, principal.sessions, principal.queued_runs, runs, wait];
  });
  showRows(byId('principals'), rows);
}

function showLimits(state) {
  const limits = new Map(state.limits.map((limit) => [limit.name, number(limit.value)]));
  const uses = [['tensor_bytes', bytes], ['recycled_bytes', bytes], ['staging_bytes', bytes], ['tensors', String],
    ['sessions', String], ['connections', String], ['programs', String], ['queued_runs', String],
    ['queued_plans', String]].filter(([name]) => limits.has(`${name}_max`));
  showEach(byId('limits'), 'div', uses, (row, [name, shown]) => {
    const used = number(state[name]), most = limits.get(`${name}_max`);
    if (!row.firstChild) {
      add(row, 'span', {}, name.replace('_', ' '));
      add(row, 'meter', { min: 0 });
      add(row, 'span');
      row.className = 'limit';
    }
    setAll(row.children[1], { max: Math.max(1, most), high: 0.8 * most, value: used });
    setText(row.children[2], `${shown(used)} of ${shown(most)}`);
  });
}

function showState(state) {
  setText(byId('version'), state.version);
  setText(byId('serving'), state.draining ? 'draining' : state.serving ? 'serving' : 'not serving');
  byId('serving').classList.toggle('bad', !state.serving);
  setText(byId('about'), `${location.host}, up ${time(1000 * number(state.uptime_ms))}, ` +
    `generation ${state.generation} of the mesh`);
  const run = state.run_under_way;
  setText(byId('now'), run ? `Now: ${run.what}, since ${time(1000 * number(run.ms))}` +
    (number(run.usual_ms) ? `, usually ${time(1000 * number(run.usual_ms))}` : '') +
    `${run.slow ? ', slow' : ''}${run.where ? `: ${run.where}` : ''}` : '');
  showRanks(state);
  showQueue(state);
  showLimits(state);
}

// --- events ----------------------------------------------------------------------------------------------------

let seen = 0;       // Of the daemon's events, since its start.
let recent = [];    // Of the last minute.
let failures = [];  // The latest first.

function takeEvents(reply) {
  const now = Date.now();
  const first = number(reply.earlier);
  const news = reply.events.map((event, index) => {
    const end = now - number(event.age_us) / 1000;
    const turn = end - number(event.took_us) / 1000;
    return { ...event, key: first + index, end, turn, asked: turn - number(event.waited_us) / 1000 };
  });
  seen = first + news.length;
  failures = news.filter((event) => event.code !== 0).reverse().concat(failures).slice(0, kFailuresMax);
  recent = recent.concat(news).filter((event) => event.end > now - kMinuteMs);
}

const codeName = (code) => kCodes[code] ?? String(code);

function showFailures() {
  const rows = failures.map((event) => [time(1000 * (Date.now() - event.end)), event.kind, event.number, event.name,
    codeName(event.code), event.error]);
  showRows(byId('failures'), rows);
}

function told(event) {
  const took = event.kind === 'mesh' ? '' : `, took ${time(number(event.took_us))}`;
  const waited = number(event.waited_us) ? `, waited ${time(number(event.waited_us))}` : '';
  const how = event.code === 0 ? '' : `\n${codeName(event.code)}: ${event.error}`;
  return `${event.kind} ${event.number} ${event.name}${took}${waited}${how}`;
}

// A lane for each, so that none lies upon another where lanes suffice.
function inLanes(runs) {
  const ends = Array(kLanes).fill(-Infinity);
  return runs.sort((a, b) => a.asked - b.asked).map((event) => {
    let lane = ends.findIndex((end) => end <= event.asked);
    if (lane < 0) lane = ends.indexOf(Math.min(...ends));
    ends[lane] = event.end;
    return [event, lane];
  });
}

const drawn = new Map();  // Marks of the timeline, by key.

// The mark of `event`, whose parts have these attributes by tag.
function mark(svg, event, parts) {
  let group = drawn.get(event.key);
  if (!group) {
    group = add(svg, 'g');
    add(group, 'title', {}, told(event));
    for (const [tag] of parts) add(group, tag);
    drawn.set(event.key, group);
  }
  parts.forEach(([, attributes], index) => setAll(group.children[index + 1], attributes));
}

function showTimeline() {
  const svg = byId('timeline');
  const width = svg.clientWidth || 800, top = 18, lane = 17, below = top + kLanes * lane + 6;
  const now = Date.now();
  const x = (at) => Math.max(0, width * (1 - (now - at) / kMinuteMs));
  const span = (from, to) => ({ x: x(from).toFixed(1), width: Math.max(1.5, x(to) - x(from)).toFixed(1) });
  if (!svg.firstChild) {
    for (let i = 1; i < 6; ++i) add(svg, 'line', { class: 'tick' });
    for (let i = 1; i < 6; ++i) add(svg, 'text', { y: 12 }, `-${60 - 10 * i} s`);
  }
  for (let i = 1; i < 6; ++i) {
    setAll(svg.children[i - 1], { x1: (width * i) / 6, x2: (width * i) / 6, y1: 0, y2: 210 });
    setAll(svg.children[i + 4], { x: (width * i) / 6 + 3 });
  }
  const shown = recent.slice(-kBarsMax);
  const keys = new Set(shown.map((event) => event.key));
  for (const [key, group] of drawn) {
    if (!keys.has(key)) group.remove();
    if (!keys.has(key)) drawn.delete(key);
  }
  for (const [event, row] of inLanes(shown.filter((each) => each.kind === 'run'))) {
    const y = { y: top + row * lane, height: lane - 3 };
    mark(svg, event, [['rect', { class: 'wait', ...span(event.asked, event.turn), ...y }],
      ['rect', { class: event.code === 0 ? 'run' : 'run failed', ...span(event.turn, event.end), ...y }]]);
  }
  for (const event of shown) {
    const y = { y: below, height: lane };
    if (event.kind === 'mesh') {
      const at = x(event.end);
      const kind = event.name === 'serves' ? 'serves' : 'ended';
      mark(svg, event, [['line', { class: kind, x1: at, x2: at, y1: 0, y2: 210 }]]);
    } else if (event.kind !== 'run') {
      const kind = event.code === 0 ? 'planning' : 'request failed';
      mark(svg, event, [['rect', { class: kind, ...span(event.turn, event.end), ...y }]]);
    }
  }
  const runs = recent.filter((event) => event.kind === 'run').length;
  const beyond = recent.length > kBarsMax ? `; the latest ${kBarsMax} events are drawn` : '';
  timelineHint = `${runs} runs: faint while they waited, in full colour from their turn to their end, red where they ` +
    `failed. Below: plans and failed requests. Lines: the mesh ended, or serves again${beyond}.`;
  if (!hovered) setText(byId('hover'), timelineHint);
}

let timelineHint = '';
let hovered = false;

// The title of what the pointer is on is shown under the picture, too.
function tellHovered(svg, place, hint) {
  svg.addEventListener('pointerover', (event) => {
    const title = event.target.closest('g')?.querySelector('title');
    hovered = Boolean(title) && svg === byId('timeline');
    setText(place, title ? title.textContent : hint());
  });
  svg.addEventListener('pointerleave', () => { hovered = false; setText(place, hint()); });
}

// --- plans -----------------------------------------------------------------------------------------------------

let chosen = null;   // The id of the program whose plan is shown.

function showPrograms(reply) {
  showEach(byId('programs'), 'a', reply.programs, (link, program) => {
    setText(link, `${program.name} (${program.requests})`);
    setAll(link, { href: `#program=${program.id}` });
    if (program.id === chosen) link.setAttribute('aria-current', 'true');
    else link.removeAttribute('aria-current');
  });
}

const bytesOf = (record) =>
  record.bytes_value !== undefined ? bytes(number(record.bytes_value)) : record.bytes ? `${record.bytes} bytes` : '';

function toldOf(segment) {
  const launches = segment.launches > 1 ? `, ${segment.launches} launches` : '';
  const loop = segment.loop ? `, ${segment.iterations} times in ${segment.loop}` : '';
  return [`${segment.name}: ${segment.kind}${segment.schedule ? `, ${segment.schedule}` : ''}${launches}${loop}`,
    bytesOf(segment), segment.ops.join('; '), segment.note].filter(Boolean).join('\n');
}

// A lane for each kind, in each of which boxes stand in the order of the plan, as wide as they have bytes.
function drawPlan(plan) {
  const svg = byId('plan');
  svg.replaceChildren();
  const kinds = [...new Set(plan.segments.map((segment) => segment.kind))];
  kinds.sort((a, b) => (a === 'communication') - (b === 'communication'));  // Below all that computes.
  const most = Math.max(1, ...plan.segments.map((segment) => number(segment.bytes_value)));
  const left = 110, lane = 40;
  let x = left;
  for (const segment of plan.segments) {
    const width = 70 + Math.round(130 * Math.sqrt(number(segment.bytes_value) / most));
    const place = { x, y: 4 + kinds.indexOf(segment.kind) * lane, width, height: lane - 8 };
    const known = ['kernel', 'library', 'communication'].includes(segment.kind);
    const group = add(svg, 'g', { class: `box ${known ? segment.kind : 'other'}` });
    add(group, 'title', {}, toldOf(segment));
    add(group, 'rect', place);
    const inside = add(group, 'svg', place);  // Which cuts off what is too long.
    add(inside, 'text', { x: 5, y: 20 }, segment.name);
    x += width + 2;
  }
  kinds.forEach((kind, row) => add(svg, 'text', { x: 0, y: 24 + row * lane }, kind));
  setAll(svg, { width: x, height: Math.max(1, kinds.length * lane) });
  showRows(byId('communications'), plan.communications.map((record) => [
    number(record.count) > 1 ? `#${record.number} to #${number(record.number) + number(record.count) - 1}`
      : `#${record.number}`,
    record.type, record.tensor, bytesOf(record), record.team.map((team) => ranges(team.ranks.map(Number))).join(' | '),
    record.reason]));
  showLines(byId('notes'), plan.notes);
}

async function showPlans() {
  const reply = await get('/plans.json');
  const asked = Number(/^#program=(\d+)$/.exec(location.hash)?.[1]);
  const program = reply.programs.find((each) => each.id === asked) ?? reply.programs[0];
  if (program && program.id !== chosen) {
    const plan = await get(`/plan.json?id=${program.id}`);
    if (plan === null) return;  // It has just gone: the next list is without it.
    chosen = program.id;
    drawPlan(plan);
    setText(byId('plan-name'), program.name);
  }
  if (!program) setText(byId('plan-name'), 'No program is kept yet.');
  showPrograms(reply);
}

// --- each second -----------------------------------------------------------------------------------------------

let goneSince = null;
let uptimeMs = 0;
let turns = 0;

class Unanswered extends Error {}

async function get(path) {
  let answer;
  try {
    answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
    if (answer.status === 404) return null;
    if (answer.ok) return await answer.json();
  } catch (error) {
    throw new Unanswered(error.message);
  }
  throw new Unanswered(await answer.text());
}

function showGone() {
  byId('gone').hidden = goneSince === null;
  byId('all').classList.toggle('stale', goneSince !== null);
  if (goneSince) setText(byId('gone'), `The daemon has not answered since ${goneSince.toLocaleTimeString()}.`);
}

async function refresh() {
  const state = await get('/state.json');
  if (number(state.uptime_ms) < uptimeMs) {  // It is another daemon: its numbers begin again.
    [seen, recent, failures, chosen, turns] = [0, [], [], null, 0];
    for (const group of drawn.values()) group.remove();
    drawn.clear();
    cpuBefore.clear();
  }
  uptimeMs = number(state.uptime_ms);
  takeEvents(await get(`/events.json?after=${seen}`));
  showState(state);
  showFailures();
  showTimeline();
  if (turns++ % 3 === 0) await showPlans();
}

async function forever() {
  try {
    await refresh();
    goneSince = null;
  } catch (error) {
    if (!(error instanceof Unanswered)) throw error;
    goneSince ??= new Date();
  } finally {
    showGone();
    setTimeout(forever, kEachMs);
  }
}

tellHovered(byId('timeline'), byId('hover'), () => timelineHint);
tellHovered(byId('plan'), byId('box'), () => '');
addEventListener('hashchange', () => showPlans().catch(() => {}));  // The next refresh says what is wrong.
forever();
