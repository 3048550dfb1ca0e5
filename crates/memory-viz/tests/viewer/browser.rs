//! A browser, driven through its debugging pipe: commands and answers are JSON, each ended by a zero byte.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time that anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    session: Option<String>,
    events: Vec<Value>,
    profile: PathBuf,
}

/// Starts the browser that `CHROMIUM` names, or says why none is started. Other installed browsers are ignored, since
/// browsers differ and the tests are about the page.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn browser() -> Option<Browser> {
    let Some(program) = std::env::var_os("CHROMIUM") else {
        eprintln!("skipped: `CHROMIUM` names no browser; `cargo xtask viewer` fetches one and runs this");
        return None;
    };
    Some(Browser::start(Path::new(&program)))
}

impl Browser {
    fn start(program: &Path) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let profile = std::env::temp_dir().join(format!("viewer-test-{}-{count}", std::process::id()));
        // The pipe is file descriptors 3 and 4 of the browser; a shell makes them of its own input and output.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>&2"])
            .arg(program)
            .args(["--headless=shell", "--no-sandbox", "--no-zygote", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--remote-debugging-pipe", "--window-size=1280,800", "--force-device-scale-factor=1"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output, next: 0, session: None, events: Vec::new(), profile }
    }

    /// Opens a file in a page of its own.
    pub(crate) fn open(&mut self, path: &Path) {
        let target = self.send("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.send("Target.attachToTarget", attach);
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            self.send(domain, json!({}));
        }
        // Newer browsers ignore a size given when a tab is created.
        let metrics = json!({"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", metrics);
        self.send("Page.navigate", json!({"url": format!("file://{}", path.display())}));
    }

    fn send(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.input.flush().unwrap();
        loop {
            let mut answer = Vec::new();
            let length = self.output.read_until(0, &mut answer).unwrap();
            assert!(length > 0, "the browser ended during {method}");
            answer.pop();
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"].as_u64() != Some(self.next) {
                self.events.push(answer);
                continue;
            }
            assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
            return answer["result"].take();
        }
    }

    /// The value of an expression in the page, awaited.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.send("Runtime.evaluate", params);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        self.value(expression).as_f64().unwrap()
    }

    /// The text of the element that a selector names.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let text = self.value(&format!("document.querySelector('{selector}').textContent"));
        text.as_str().unwrap().to_owned()
    }

    /// What the page's worker answers.
    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.value(&format!("viewer.ask({request})"))
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.value(expression) != Value::Bool(true) {
            assert!(begin.elapsed() < PATIENCE, "waited in vain for {expression}; faults: {:?}", self.faults());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the picture is that of the view.
    pub(crate) fn rest(&mut self) {
        let frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.value(frames);
        self.wait("!viewer.state.busy && (!viewer.state.stale || viewer.state.tab > 1)");
        self.value(frames);
    }

    /// Errors of scripts, and what the page was refused.
    pub(crate) fn faults(&self) -> Vec<String> {
        let is_fault = |event: &&Value| {
            event["method"] == "Runtime.exceptionThrown"
                || event["method"] == "Log.entryAdded" && event["params"]["entry"]["level"] == "error"
        };
        self.events.iter().filter(is_fault).map(|event| event["params"].to_string()).collect()
    }

    /// What the page has fetched besides itself.
    pub(crate) fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        let urls = sent.filter_map(|event| event["params"]["request"]["url"].as_str().map(str::to_owned));
        urls.filter(|url| !url.starts_with("blob:") && !url.ends_with(".html")).collect()
    }

    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.send(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "text": if kind == "keyDown" { key } else { "" }}),
            );
        }
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.send("Input.insertText", json!({"text": text}));
    }

    pub(crate) fn move_to(&mut self, x: u32, y: u32) {
        self.send("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y}));
    }

    pub(crate) fn click(&mut self, x: u32, y: u32) {
        self.move_to(x, y);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.send("Input.dispatchMouseEvent", event);
        }
    }

    pub(crate) fn wheel(&mut self, x: u32, y: u32, amount: i32) {
        let event = json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": amount});
        self.send("Input.dispatchMouseEvent", event);
    }

    /// Leaves a picture of the page among the tests' files.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let shot = self.send("Page.captureScreenshot", json!({"format": "png"}));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("viewer-{name}.png"));
        std::fs::write(path, unbase64(shot["data"].as_str().unwrap())).unwrap();
    }
}

fn unbase64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').map(value).collect();
    let mut bytes = Vec::new();
    for four in letters.chunks(4) {
        let bits = four.iter().fold(0_u32, |bits, value| bits << 6 | u32::from(*value)) << (6 * (4 - four.len()));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself, and its profile is of no use to anyone.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
