//! The project's commands, run as `cargo xtask COMMAND`.
//!
//! Everything a person or a CI machine does with this project has its command here; `flags.rs` lists them in one table.
//! The crate depends on no crate of this workspace and on two small ones of the registry, so that the first command
//! starts within seconds. It never touches git.
#![forbid(unsafe_code)]

mod flags;
mod shell;

mod bench;
mod bundle;
mod check;
mod codegen;
mod demo;
mod differential;
mod differential_ops;
mod driver;
mod fills;
mod foreign;
mod gpu_test;
mod kernels;
mod lint;
mod replay;
mod test;
mod viewer;

mod dependencies;
mod docs;
mod survey;
mod tidy;
mod wheels;

use std::process::ExitCode;

fn main() -> ExitCode {
    match flags::parse(std::env::args_os().skip(1)) {
        Ok(flags::Request::Help(text)) => {
            shell::say(&text);
            ExitCode::SUCCESS
        }
        Ok(flags::Request::Run(command, flags)) => match (command.run)(&flags) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                shell::complain(&format!("xtask {}: {error}", command.name));
                ExitCode::FAILURE
            }
        },
        Err(usage) => {
            shell::complain(&usage);
            ExitCode::from(2)
        }
    }
}
