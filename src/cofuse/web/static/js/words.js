// Numbers and states in plain words.

export function bytes(count) {
  if (count < 1e6) return `${Math.max(1, Math.round(count / 1e3))} kB`;
  return count < 1e9 ? `${(count / 1e6).toFixed(1)} MB` : `${(count / 1e9).toFixed(2)} GB`;
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

export function seconds(value) {
  const whole = Math.round(value); // before it is divided: there is no 60th second of a minute
  if (whole <= 1) return "a second";
  if (whole < 60) return `${whole} s`;
  const minutes = whole < 3600 ? Math.floor(whole / 60) : Math.round(whole / 60);
  const [large, small, left] = whole < 3600 ? [`${minutes} min`, "s", whole % 60] : [`${Math.floor(minutes / 60)} h`, "min", minutes % 60];
  return left ? `${large} ${left} ${small}` : large;
}

/** A short time as it was measured, for tables. */
export const duration = (value) => (value < 10 ? `${value.toFixed(1)} s` : seconds(value));

export const megapixels = (width, height) =>
  `${((width * height) / 1e6).toFixed(width * height < 1e7 ? 1 : 0)} MP`;

/** A file may hold several frames, as a multi-page TIFF does. */
export const frameCount = (stack) => (stack?.frames ?? []).reduce((sum, { pages }) => sum + (pages ?? 1), 0);

/** Two lines: what the picture is, and what the file is. */
export function frameFacts(frame) {
  const pages = frame.pages > 1 ? `, ${frame.pages} pages` : "";
  return [
    `${frame.width} × ${frame.height}, ${frame.depth} bit${frame.colour ? "" : " grey"}`,
    `${frame.format.toUpperCase()}${pages}, ${bytes(frame.bytes)}`,
  ];
}

export const STATES = {
  waiting: "waiting",
  running: "fusing",
  done: "done",
  failed: "failed",
  cancelled: "cancelled",
  interrupted: "interrupted",
};

// What the library calls its stages, as one would say them.
const STAGES = {
  "hot pixels": "Looking for hot pixels",
  align: "Aligning the frames",
  frames: "Bringing the frames into place",
  noise: "Measuring the noise",
  choice: "Choosing the sharpest frame",
  fusion: "Fusing",
  restoration: "Taking the noise out",
  reconstruction: "Taking the noise out",
  depth: "Measuring the depth",
  reading: "Reading the frames",
  writing: "Writing the result",
  stopping: "Stopping",
};

export const stageWords = (stage) => STAGES[stage] ?? capital(stage);

/** When it was, by the clock; by the day if that was another. */
export function moment(text) {
  const time = new Date(text);
  const today = time.toDateString() === new Date().toDateString();
  return today
    ? time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : time.toLocaleDateString([], { day: "numeric", month: "short" });
}

export const isActive = (job) => job.state === "waiting" || job.state === "running";

export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

// The server names arguments of the library; this is what the page calls them.
const CONTROLS = {
  sigma: "Noise",
  denoise: "Noise taken out",
  align: "Align",
  preset: "Method",
  device: "Runs on",
  hot_pixels: "Mend hot pixels",
  max_memory: "Memory at most",
  z_step: "Distance between frames",
};
const ARGUMENT = /`(\w+)(?:='?([^`']+)'?)?`/g;
// A file's name stays as it is: it ends before the first sign.
const BEGINS_WITH_A_FILE = /^[^:;,]*\.[a-z]\w{1,4}\b/i;

/** A line of the server, as the page says it. */
export function sentence(line) {
  const words = line.replace(ARGUMENT, (whole, name, value) =>
    name in CONTROLS ? `“${CONTROLS[name]}”${value ? `: ${value}` : ""}` : whole,
  );
  return BEGINS_WITH_A_FILE.test(words) ? words : capital(words);
}
