//! Links of several texts to one image.

use super::function::file_with;
use super::prelude::*;
use super::ptx::{HEAD, idle, kernel};

cases!("link", CASES, Needs::CONTEXT;
    two_texts, texts_of_files, nothing_is_wrong,
);

cases!("link", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    images_are_loaded_everywhere, texts_that_are_none, inputs_that_are_none, names_that_do_not_fit, null_arguments,
    handles_that_are_none, completed_links,
);

/// Declares a function that another text defines.
const TWICE: &str = ".func (.param .b32 result) twice (.param .b32 value)";

/// A kernel that writes twice `n`.
fn caller() -> String {
    let body = "{ .param .b32 a; st.param.b32 [a], %n; .param .b32 b; call.uni (b), twice, (a); ld.param.b32 %r1, [b]; }\n\
                st.global.u32 [%o], %r1;";
    kernel(body).replace(".visible .entry", &format!(".extern {TWICE};\n.visible .entry"))
}

/// The text that defines it.
fn callee() -> String {
    format!(
        "{HEAD}.visible {TWICE} {{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [value];\nadd.u32 %r2, %r1, %r1;\n\
         st.param.b32 [result], %r2;\nret;\n}}\n"
    )
}

const PTX: CUjitInputType = CUjitInputType::CU_JIT_INPUT_PTX;

/// A link with room for what was wrong.
struct Linker<'c, 'd> {
    cu: &'c Cuda<'d>,
    state: CUlinkState,
    log: Box<[u8; 1024]>,
    /// The values of the options, which must stay where they are.
    values: Box<[*mut c_void; 2]>,
}

impl<'c, 'd> Linker<'c, 'd> {
    fn new(cu: &'c Cuda<'d>) -> CaseResult<Self> {
        let (mut log, mut state) = (Box::new([0_u8; 1024]), ptr::null_mut());
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = Box::new([log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())]);
        ok!(cu.cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut state));
        Ok(Self { cu, state, log, values })
    }

    fn add_as(&self, input: CUjitInputType, bytes: &[u8]) -> CaseResult<CUresult> {
        let (cu, data, none) = (self.cu, bytes.as_ptr().cast_mut().cast(), ptr::null_mut());
        let (size, options) = (bytes.len(), ptr::null_mut());
        Ok(status!(cu.cuLinkAddData_v2(self.state, input, data, size, c"input".as_ptr(), 0, options, none)))
    }

    fn add(&self, text: &str) -> CaseResult<CUresult> {
        self.add_as(PTX, format!("{text}\0").as_bytes())
    }

    fn add_file(&self, input: CUjitInputType, path: &std::ffi::CStr) -> CaseResult<CUresult> {
        let (cu, options, none) = (self.cu, ptr::null_mut(), ptr::null_mut());
        Ok(status!(cu.cuLinkAddFile_v2(self.state, input, path.as_ptr(), 0, options, none)))
    }

    fn complete(&self) -> CaseResult<(CUresult, *mut c_void, usize)> {
        let (cu, mut image, mut size) = (self.cu, ptr::null_mut(), 0);
        let status = status!(cu.cuLinkComplete(self.state, &mut image, &mut size));
        Ok((status, image, size))
    }

    /// The module of the image; the link is gone then.
    fn module(self) -> CaseResult<CUmodule> {
        let (cu, mut module, (status, image, size)) = (self.cu, ptr::null_mut(), self.complete()?);
        same!(cu, (status, size > 0), (CUresult::CUDA_SUCCESS, true));
        ok!(cu.cuModuleLoadData(&mut module, image));
        cu.later(Cleanup::Module(module));
        self.destroy()?;
        Ok(module)
    }

    /// What was wrong, by the log; the link is gone then.
    fn destroy(self) -> CaseResult<String> {
        let cu = self.cu;
        ok!(cu.cuLinkDestroy(self.state));
        let end = self.log.iter().position(|byte| *byte == 0).unwrap_or(0);
        that!(cu, end == 0 || self.values[1].addr() == end + 1);
        Ok(String::from_utf8_lossy(&self.log[..end]).into_owned())
    }
}

fn expect_twice(cu: &Cuda<'_>, module: CUmodule) -> CaseResult {
    let (function, out) = (cu.function_of(module)?, cu.filled(4, 0)?);
    cu.launch(function, [[1; 3]; 2], 0, DEFAULT, &[out, 0, 21])?;
    same!(cu, cu.read_words(out, 1)?, [42]);
    Ok(())
}

fn two_texts(cu: &Cuda<'_>) -> CaseResult {
    for texts in [[caller(), callee()], [callee(), caller()]] {
        let linker = Linker::new(cu)?;
        for text in &texts {
            same!(cu, linker.add(text)?, CUresult::CUDA_SUCCESS);
        }
        expect_twice(cu, linker.module()?)?;
    }
    Ok(())
}

fn texts_of_files(cu: &Cuda<'_>) -> CaseResult {
    let linker = Linker::new(cu)?;
    let (_caller, path) = file_with("caller.ptx", format!("{}\0", caller()).as_bytes())?;
    same!(cu, linker.add_file(PTX, &path)?, CUresult::CUDA_SUCCESS);
    let (_callee, path) = file_with("callee.ptx", format!("{}\0", callee()).as_bytes())?;
    same!(cu, linker.add_file(PTX, &path)?, CUresult::CUDA_SUCCESS);
    same!(cu, linker.add_file(PTX, c"/no/such/file.ptx")?, CUresult::CUDA_ERROR_FILE_NOT_FOUND);
    expect_twice(cu, linker.module()?)
}

fn nothing_is_wrong(cu: &Cuda<'_>) -> CaseResult {
    let mut state = ptr::null_mut();
    ok!(cu.cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &mut state));
    that!(cu, !state.is_null());
    ok!(cu.cuLinkDestroy(state));
    Ok(())
}

/// Modules, libraries, files and other links take an image.
fn images_are_loaded_everywhere(cu: &Cuda<'_>) -> CaseResult {
    let first = Linker::new(cu)?;
    first.add(&callee())?;
    let (_, image, size) = first.complete()?;
    // SAFETY: the link gave out so many bytes, and was not destroyed yet.
    let bytes = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec();
    first.destroy()?;
    let second = Linker::new(cu)?;
    second.add(&caller())?;
    same!(cu, second.add_as(CUjitInputType::CU_JIT_INPUT_CUBIN, &bytes)?, CUresult::CUDA_SUCCESS);
    let (_, image, size) = second.complete()?;
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec();
    second.destroy()?;
    let (mut module, (_file, path)) = (ptr::null_mut(), file_with("linked.cubin", &bytes)?);
    ok!(cu.cuModuleLoad(&mut module, path.as_ptr()));
    cu.later(Cleanup::Module(module));
    expect_twice(cu, module)?;
    let (mut library, none, values) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let code = bytes.as_ptr().cast();
    ok!(cu.cuLibraryLoadData(&mut library, code, ptr::null_mut(), none, 0, ptr::null_mut(), values, 0));
    cu.later(Cleanup::Library(library));
    ok!(cu.cuLibraryGetModule(&mut module, library));
    expect_twice(cu, module)
}

fn texts_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let wrong = [
        ("text".to_owned(), CUresult::CUDA_ERROR_INVALID_IMAGE),
        ("\x7fELF".to_owned(), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
        (kernel("frobnicate.u32 %r1, %r0;"), CUresult::CUDA_ERROR_INVALID_PTX),
        (idle().replace("7.8", "99.0"), CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
    ];
    for (text, wanted) in wrong {
        let linker = Linker::new(cu)?;
        same!(cu, linker.add(&text)?, wanted);
        let (_file, path) = file_with("wrong-input.ptx", text.as_bytes())?;
        same!(cu, linker.add_file(PTX, &path)?, wanted);
        let log = linker.destroy()?;
        that!(cu, wanted != CUresult::CUDA_ERROR_INVALID_PTX || log.contains("frobnicate"));
    }
    Ok(())
}

fn inputs_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let linker = Linker::new(cu)?;
    for input in [3, 4, 5] {
        same!(cu, linker.add_as(CUjitInputType(input), b"\x7fELF")?, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    same!(cu, linker.add_as(CUjitInputType(6), b"\x7fELF")?, CUresult::CUDA_ERROR_INVALID_VALUE);
    let (_file, path) = file_with("input.o", b"\x7fELF")?;
    same!(cu, linker.add_file(CUjitInputType(6), &path)?, CUresult::CUDA_ERROR_INVALID_VALUE);
    same!(cu, linker.complete()?.0, CUresult::CUDA_ERROR_INVALID_VALUE);
    linker.destroy()?;
    Ok(())
}

/// A function that no text defines, and one that two texts define.
fn names_that_do_not_fit(cu: &Cuda<'_>) -> CaseResult {
    for (texts, name) in [(vec![caller()], "undefined reference to 'twice'"), (vec![callee(), callee()], "'twice'")] {
        let linker = Linker::new(cu)?;
        for text in &texts {
            same!(cu, linker.add(text)?, CUresult::CUDA_SUCCESS);
        }
        same!(cu, linker.complete()?.0, CUresult::CUDA_ERROR_INVALID_IMAGE);
        let log = linker.destroy()?;
        that!(cu, log.contains(name));
    }
    Ok(())
}

fn null_arguments(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()));
    let linker = Linker::new(cu)?;
    let (state, none, path) = (linker.state, ptr::null_mut(), ptr::null());
    want!(INVALID_VALUE, cu.cuLinkAddData_v2(state, PTX, none, 1, path, 0, ptr::null_mut(), ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuLinkAddFile_v2(state, PTX, path, 0, ptr::null_mut(), ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuLinkComplete(state, ptr::null_mut(), ptr::null_mut()));
    linker.destroy()?;
    Ok(())
}

fn handles_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (text, mut image, mut size) = (idle(), ptr::null_mut(), 0);
    for wrong in [0, 0xDEAD_BEE8] {
        let (state, none) = (ptr::without_provenance_mut(wrong), ptr::null_mut());
        let (data, path, values) = (text.as_ptr().cast_mut().cast(), c"/dev/null".as_ptr(), ptr::null_mut());
        want!(INVALID_HANDLE, cu.cuLinkAddData_v2(state, PTX, data, 1, ptr::null(), 0, none, values));
        want!(INVALID_HANDLE, cu.cuLinkAddFile_v2(state, PTX, path, 0, none, values));
        want!(INVALID_HANDLE, cu.cuLinkComplete(state, &mut image, &mut size));
        want!(INVALID_HANDLE, cu.cuLinkDestroy(state));
    }
    Ok(())
}

fn completed_links(cu: &Cuda<'_>) -> CaseResult {
    let linker = Linker::new(cu)?;
    same!(cu, linker.add(&idle())?, CUresult::CUDA_SUCCESS);
    same!(cu, linker.complete()?.0, CUresult::CUDA_SUCCESS);
    same!(cu, linker.add(&callee())?, CUresult::CUDA_ERROR_INVALID_VALUE);
    linker.destroy()?;
    Ok(())
}
