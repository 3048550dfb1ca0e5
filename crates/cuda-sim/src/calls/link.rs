//! Links: texts of several inputs become one image. What is given out as machine code is a format of our own, which
//! modules, libraries and other links take.

use std::ffi::{c_char, c_void};

use cuda_sys::driver::types::{CUjit_option, CUjitInputType as Input, CUlinkState, CUlinkState_st};

use super::image::{Image, Refused, linked, packed};
use crate::call::Call;
use crate::claim::{Ptr, handle, host_pointer};
use crate::codes::{Answer, INVALID_IMAGE, INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_SUPPORTED};
use crate::model::links::{Link, Logs};

pub(crate) fn create(
    call: &mut Call<'_>,
    count: u32,
    options: Ptr<CUjit_option>,
    values: Ptr<*mut c_void>,
    link: Ptr<CUlinkState>,
) -> Answer {
    link.required()?;
    let logs = Logs::find(count, options, values)?;
    let key = call.new_handle();
    call.links.insert(key, Link { logs, texts: Vec::new(), image: None });
    link.write(handle(key))
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn add_data(
    call: &mut Call<'_>,
    link: Ptr<CUlinkState_st>,
    input: Input,
    data: Ptr<c_void>,
    size: usize,
    _name: Ptr<c_char>,
    _count: u32,
    _options: Ptr<CUjit_option>,
    _values: Ptr<*mut c_void>,
) -> Answer {
    call.link(link.address())?;
    let image = Image::Bytes(data.required()?.cast::<u8>().read_array(size)?);
    add(call, link, input, &image)
}

pub(crate) fn add_file(
    call: &mut Call<'_>,
    link: Ptr<CUlinkState_st>,
    input: Input,
    path: Ptr<c_char>,
    _count: u32,
    _options: Ptr<CUjit_option>,
    _values: Ptr<*mut c_void>,
) -> Answer {
    call.link(link.address())?;
    let image = Image::of_file(path)?;
    add(call, link, input, &image)
}

fn add(call: &mut Call<'_>, link: Ptr<CUlinkState_st>, input: Input, image: &Image) -> Answer {
    let found = call.link(link.address())?;
    let (logs, is_complete) = (found.logs, found.image.is_some());
    if input.0 >= Input::CU_JIT_NUM_INPUT_TYPES.0 || is_complete {
        return Err(INVALID_VALUE);
    }
    match texts_of(call, input, image) {
        Ok(texts) => {
            logs.write("")?;
            call.link(link.address())?.texts.extend(texts);
            Ok(())
        }
        Err(refused) => Err(refused.tell(call, &logs)?),
    }
}

/// The texts of an input, each of which must be right by itself but for what the others define.
fn texts_of(call: &Call<'_>, input: Input, image: &Image) -> Result<Vec<String>, Refused> {
    let texts = match input {
        Input::CU_JIT_INPUT_PTX | Input::CU_JIT_INPUT_FATBINARY | Input::CU_JIT_INPUT_CUBIN => image.texts()?,
        _ => {
            let why = "objects, libraries and intermediate code are not simulated".to_owned();
            return Err(Refused { code: NO_BINARY_FOR_GPU, why });
        }
    };
    let limits = call.ptx_limits();
    for text in &texts {
        match linked(std::slice::from_ref(text), limits) {
            Err(refused) if refused.code != NOT_SUPPORTED => return Err(refused),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(texts)
}

pub(crate) fn complete(
    call: &mut Call<'_>,
    link: Ptr<CUlinkState_st>,
    image: Ptr<*mut c_void>,
    size: Ptr<usize>,
) -> Answer {
    let limits = call.ptx_limits();
    let found = call.link(link.address())?;
    image.required()?;
    if found.texts.is_empty() {
        return Err(INVALID_VALUE);
    }
    let wrong = match linked(&found.texts, limits) {
        Ok(module) => module.undefined().iter().map(|name| format!("error: undefined reference to '{name}'")).collect(),
        Err(refused) => vec![refused.why],
    };
    found.logs.write(&wrong.join("\n"))?;
    if !wrong.is_empty() {
        return Err(INVALID_IMAGE);
    }
    let made = packed(&found.texts).into_boxed_slice();
    let (address, bytes) = (made.as_ptr().expose_provenance() as u64, made.len());
    found.image = Some(made);
    size.write_if_wanted(bytes);
    image.write(host_pointer(address))
}

pub(crate) fn destroy(call: &mut Call<'_>, link: Ptr<CUlinkState_st>) -> Answer {
    call.link(link.address())?;
    call.links.remove(&link.address());
    Ok(())
}
