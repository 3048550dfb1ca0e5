//! `cargo xtask viewer`: the page of `memory-viz` in a real browser, without a screen.
//!
//! The browser is a package of the npm registry at a pinned version and digest, unpacked beneath the target folder.
//! Without npm the tests are left out, and the command says so. `CHROMIUM` names another browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Result};
use crate::{driver, wheels};

/// The package that holds a headless Chromium, its libraries and a font.
const PACKAGE: &str = "@sparticuz/chromium@153.0.0";
const ARCHIVE: &str = "sparticuz-chromium-153.0.0.tgz";

/// The sum of the package's file (SHA-512).
const DIGEST: &str = "8e2196a92bcf31dbb8f8ff538a562a011ef21063c41c8371fa50af13f36a34efc41d8cc5ff1d615222394fa8a8548b7b744cbb9fcf1bcb24f4be4f9d9ec810c0";

/// Unpacks what the package compresses: `.br` files beside themselves. Node.js comes with npm and knows the format.
const UNPACK: &str = "const fs = require('fs'), zlib = require('zlib'); \
                      for (const file of process.argv.slice(1)) \
                      fs.writeFileSync(file.slice(0, -3), zlib.brotliDecompressSync(fs.readFileSync(file)));";

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let browser = match std::env::var_os("CHROMIUM") {
        Some(path) => PathBuf::from(path),
        None if !has("npm") || !has("node") => {
            shell::say("skipped: there is no npm, which fetches the browser; CHROMIUM names one that is there");
            return Ok(());
        }
        None => fetched()?,
    };
    let mut tests = shell::cargo(["test", "--quiet", "--test", "viewer"]);
    // What is measured is not shared with other tests.
    tests.args(["--", "--nocapture", "--test-threads", "1"]).env("CHROMIUM", browser);
    shell::run(&mut tests)?;
    shell::say(&format!("screenshots are {}", shell::target_dir().join("tmp/viewer-*.png").display()));
    Ok(())
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The browser of the package.
fn fetched() -> Result<PathBuf> {
    let folder = shell::target_dir().join("viewer").join(&DIGEST[..16]);
    wheels::made(&folder, |unfinished| {
        shell::say(&format!("fetching {PACKAGE}"));
        make_folder(unfinished)?;
        let npm = ["pack", PACKAGE, "--silent"];
        shell::capture(Command::new("npm").args(npm).current_dir(unfinished))?;
        let sum = shell::capture(Command::new("sha512sum").arg(ARCHIVE).current_dir(unfinished))?;
        if !sum.starts_with(DIGEST) {
            return Err(format!("{PACKAGE} is not what was pinned: its sum is {sum}"));
        }
        shell::run(Command::new("tar").args(["xf", ARCHIVE]).current_dir(unfinished))?;
        unpack(&unfinished.join("package/bin"), &folder.join("package/bin"))
    })?;
    Ok(folder.join("package/bin/run"))
}

/// Brings the parts of the package to where a browser looks for them. `place` is where the folder will be.
fn unpack(bin: &Path, place: &Path) -> Result<()> {
    let parts = ["chromium.br", "al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br"];
    shell::run(Command::new("node").args(["-e", UNPACK]).args(parts).current_dir(bin))?;
    for part in ["al2023.tar", "fonts.tar", "swiftshader.tar"] {
        shell::run(Command::new("tar").args(["xf", part]).current_dir(bin))?;
    }
    let place = place.display();
    write(
        &bin.join("fonts.conf"),
        &format!("<fontconfig><dir>{place}/fonts</dir><cachedir>{place}/cache</cachedir></fontconfig>\n"),
    )?;
    write(
        &bin.join("run"),
        &format!(
            "#!/bin/sh\nLD_LIBRARY_PATH='{place}/lib' FONTCONFIG_FILE='{place}/fonts.conf' exec '{place}/chromium' \"$@\"\n"
        ),
    )?;
    shell::run(Command::new("chmod").args(["+x", "run", "chromium"]).current_dir(bin))
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| format!("cannot make {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
