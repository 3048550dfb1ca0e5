//! Fat binaries: containers with code for several architectures, of which the text is found.

use super::function::file_with;
use super::prelude::*;
use super::ptx::{HEAD, idle};

cases!("fat", CASES, Needs::CONTEXT;
    text_is_found, newest_text_is_taken, packed_text, container_in_a_file,
);

cases!("fat", ZSTD_CASES, Needs::CONTEXT.since(12080);
    densely_packed_text,
);

cases!("fat", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    no_text_for_the_device, containers_that_are_none, texts_that_are_none, other_ways_to_load, null_arguments,
);

/// Flags of entries: 64 bits on Linux, and how they are packed.
const PLAIN: u64 = 0x11;
const LZ4: u64 = PLAIN | 0x2000;
const ZSTD: u64 = PLAIN | 0x8000;

const TEXT: u16 = 1;
const OBJECT: u16 = 2;

/// An entry of a container.
struct Entry<'b> {
    kind: u16,
    architecture: u32,
    flags: u64,
    bytes: &'b [u8],
    /// The length once unpacked; 0 where nothing is packed.
    unpacked: u64,
}

impl<'b> Entry<'b> {
    fn text(architecture: u32, text: &'b str) -> Self {
        Self { kind: TEXT, architecture, flags: PLAIN, bytes: text.as_bytes(), unpacked: 0 }
    }

    /// Header and bytes as a compiler writes them.
    fn write(&self) -> Vec<u8> {
        let padded = self.bytes.len().next_multiple_of(8);
        let packed = if self.unpacked == 0 { 0 } else { self.bytes.len() };
        let mut entry = Vec::new();
        entry.extend(self.kind.to_le_bytes());
        entry.extend(0x101_u16.to_le_bytes());
        entry.extend(80_u32.to_le_bytes());
        entry.extend((padded as u64).to_le_bytes());
        entry.extend(u32::try_from(packed).unwrap_or(0).to_le_bytes());
        entry.extend(64_u32.to_le_bytes());
        // The version of the text: 7.8.
        entry.extend([8, 0, 7, 0]);
        entry.extend(self.architecture.to_le_bytes());
        entry.extend([0; 8]);
        entry.extend(self.flags.to_le_bytes());
        entry.extend([0; 8]);
        entry.extend(self.unpacked.to_le_bytes());
        entry.extend(72_u64.to_le_bytes());
        entry.extend([0; 8]);
        entry.extend(self.bytes);
        entry.resize(80 + padded, 0);
        entry
    }
}

fn container(entries: &[Entry<'_>]) -> Vec<u8> {
    let entries: Vec<u8> = entries.iter().flat_map(Entry::write).collect();
    let mut container = 0xBA55_ED50_u32.to_le_bytes().to_vec();
    container.extend([1, 0, 16, 0]);
    container.extend((entries.len() as u64).to_le_bytes());
    container.extend(entries);
    container
}

/// A kernel `k(u64 out, u32 n)` that writes `n` and something more, and ends with a zero byte.
fn writes_more(architecture: &str, more: u32) -> String {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 out, .param .u32 n)\n{{\n.reg .b32 %r<3>;\n.reg .b64 %d<2>;\n\
         ld.param.u64 %d1, [out];\nld.param.u32 %r1, [n];\nadd.u32 %r2, %r1, {more};\nst.global.u32 [%d1], %r2;\nret;\n}}\n\0"
    );
    text.replace("sm_75", architecture)
}

/// [`writes_more`] with nothing more and without the addition, packed by NVIDIA's `fatbinary` in both ways.
const BY_LZ4: &str = "f5402e76657273696f6e20372e380a2e74617267657420736d5f37350a2e616464726573735f73697a652036340a2e76697369\
    626c65202e656e747279206b282e706172616d202e753634206f75742c201100f4093332206e290a7b0a2e726567202e6233322025723c323e3b\
    11005136342025641100226c644600014500a82564312c205b6f75745d1900013e00001900d16e5d3b0a73742e676c6f62616c1800f0055b2564\
    315d2c202572313b0a7265743b0a7d0a00";
const BY_ZSTD: &str = "28b52ffd20d4c5040092881c1970790330108a0d294ad62b1b43ffaf833c1468265cf5575c1b0077dcdcafdc101124df4425e5\
    d7cee862146aa2c01c4a18348fe1d460f2a6be3a733ccc368e262e461b51306febd577b950b556ef7cef9753b431734694fe2d5ac9daaf103ee7\
    64912cdbf7a9faae33e34b4f1a6dfdcc030e20304c647b82006b60eb92ca201010bc00677e368c8b582dd282205148501f2a4414";
const UNPACKED: u64 = 212;

fn from_digits(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter_map(|digit| char::from(digit).to_digit(16)?.try_into().ok()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn load(cu: &Cuda<'_>, container: &[u8]) -> CaseResult<(CUresult, CUmodule)> {
    let mut module = ptr::null_mut();
    let status = status!(cu.cuModuleLoadFatBinary(&mut module, container.as_ptr().cast()));
    if status == CUresult::CUDA_SUCCESS {
        cu.later(Cleanup::Module(module));
    }
    Ok((status, module))
}

/// What the kernel of a module writes for 5.
fn written(cu: &Cuda<'_>, module: CUmodule) -> CaseResult<u32> {
    let (function, out) = (cu.function_of(module)?, cu.filled(4, 0)?);
    cu.launch(function, [[1; 3]; 2], 0, DEFAULT, &[out, 5])?;
    Ok(cu.read_words(out, 1)?[0])
}

fn expect_written(cu: &Cuda<'_>, container: &[u8], wanted: u32) -> CaseResult {
    let (status, module) = load(cu, container)?;
    same!(cu, status, CUresult::CUDA_SUCCESS);
    if status == CUresult::CUDA_SUCCESS {
        same!(cu, written(cu, module)?, wanted);
    }
    Ok(())
}

fn text_is_found(cu: &Cuda<'_>) -> CaseResult {
    let (text, mut module) = (writes_more("sm_75", 0), ptr::null_mut());
    let container = container(&[Entry::text(75, &text)]);
    expect_written(cu, &container, 5)?;
    ok!(cu.cuModuleLoadData(&mut module, container.as_ptr().cast()));
    cu.later(Cleanup::Module(module));
    same!(cu, written(cu, module)?, 5);
    Ok(())
}

fn newest_text_is_taken(cu: &Cuda<'_>) -> CaseResult {
    let (old, new) = (writes_more("sm_70", 1), writes_more("sm_75", 2));
    expect_written(cu, &container(&[Entry::text(70, &old), Entry::text(75, &new)]), 7)?;
    expect_written(cu, &container(&[Entry::text(75, &new), Entry::text(70, &old)]), 7)
}

fn packed_text(cu: &Cuda<'_>) -> CaseResult {
    let bytes = from_digits(BY_LZ4);
    let entry = Entry { kind: TEXT, architecture: 75, flags: LZ4, bytes: &bytes, unpacked: UNPACKED };
    expect_written(cu, &container(&[entry]), 5)
}

fn densely_packed_text(cu: &Cuda<'_>) -> CaseResult {
    let bytes = from_digits(BY_ZSTD);
    let entry = Entry { kind: TEXT, architecture: 75, flags: ZSTD, bytes: &bytes, unpacked: UNPACKED };
    expect_written(cu, &container(&[entry]), 5)
}

fn container_in_a_file(cu: &Cuda<'_>) -> CaseResult {
    let (text, mut module) = (writes_more("sm_75", 3), ptr::null_mut());
    let (_file, path) = file_with("code.fatbin", &container(&[Entry::text(75, &text)]))?;
    ok!(cu.cuModuleLoad(&mut module, path.as_ptr()));
    cu.later(Cleanup::Module(module));
    same!(cu, written(cu, module)?, 8);
    Ok(())
}

/// Hardware runs the machine code beside the text; the model takes the text.
fn no_text_for_the_device(cu: &Cuda<'_>) -> CaseResult {
    let object = || Entry { kind: OBJECT, architecture: 90, flags: PLAIN, bytes: b"\x7fELF", unpacked: 0 };
    let (text, new) = (writes_more("sm_75", 0), writes_more("sm_100", 1));
    expect_written(cu, &container(&[object(), Entry::text(75, &text), Entry::text(100, &new)]), 5)?;
    for entries in [vec![object()], vec![Entry::text(100, &new)], vec![]] {
        same!(cu, load(cu, &container(&entries))?.0, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    Ok(())
}

fn containers_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let bytes = from_digits(BY_ZSTD);
    for (flags, unpacked) in [(LZ4, UNPACKED), (ZSTD, UNPACKED - 1), (ZSTD, 1 << 40)] {
        let entry = Entry { kind: TEXT, architecture: 75, flags, bytes: &bytes, unpacked };
        same!(cu, load(cu, &container(&[entry]))?.0, CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    let text = writes_more("sm_75", 0);
    let whole = container(&[Entry::text(75, &text)]);
    for length in [4, 10, 20, 90, whole.len() - 1] {
        let (mut module, (_file, path)) = (ptr::null_mut(), file_with("part.fatbin", &whole[..length])?);
        want!(INVALID_IMAGE, cu.cuModuleLoad(&mut module, path.as_ptr()));
    }
    Ok(())
}

fn texts_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let undefined = ".extern .global .align 4 .u32 other;\n.visible .global .align 8 .u64 pointer = other;\n.visible";
    let wrong = [
        ("text".to_owned(), CUresult::CUDA_ERROR_INVALID_PTX),
        (idle().replace("ret;", "frobnicate;"), CUresult::CUDA_ERROR_INVALID_PTX),
        (idle().replace("7.8", "99.0"), CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
        (idle().replace(".visible", undefined), CUresult::CUDA_ERROR_NOT_SUPPORTED),
    ];
    for (text, wanted) in wrong {
        same!(cu, load(cu, &container(&[Entry::text(75, &text)]))?.0, wanted);
    }
    let (mut free, mut total, mut memory) = (0, 0, 0);
    let large = idle().replace(".visible", ".global .align 4 .b8 table[4194304];\n.visible");
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cu.cuMemAlloc_v2(&mut memory, free >> 21 << 21));
    same!(cu, load(cu, &container(&[Entry::text(75, &large)]))?.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    ok!(cu.cuMemFree_v2(memory));
    Ok(())
}

/// What compilers put around a container in a program.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    file: *const c_void,
}

/// Through the structure around it, as a library, and as an input of a link.
fn other_ways_to_load(cu: &Cuda<'_>) -> CaseResult {
    let text = writes_more("sm_75", 4);
    let whole = container(&[Entry::text(75, &text)]);
    let wrapper = Wrapper { magic: 0x4662_43B1, version: 1, data: whole.as_ptr(), file: ptr::null() };
    let (mut module, mut library, none) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuModuleLoadFatBinary(&mut module, ptr::from_ref(&wrapper).cast()));
    cu.later(Cleanup::Module(module));
    same!(cu, written(cu, module)?, 9);
    let (options, values, code) = (ptr::null_mut(), ptr::null_mut(), whole.as_ptr().cast());
    ok!(cu.cuLibraryLoadData(&mut library, code, ptr::null_mut(), none, 0, options, values, 0));
    cu.later(Cleanup::Library(library));
    ok!(cu.cuLibraryGetModule(&mut module, library));
    same!(cu, written(cu, module)?, 9);
    let (mut link, mut image, mut size) = (ptr::null_mut(), ptr::null_mut(), 0);
    let input = CUjitInputType::CU_JIT_INPUT_FATBINARY;
    let (data, bytes, options, none) =
        (whole.as_ptr().cast_mut().cast(), whole.len(), ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &mut link));
    ok!(cu.cuLinkAddData_v2(link, input, data, bytes, ptr::null(), 0, options, none));
    ok!(cu.cuLinkComplete(link, &mut image, &mut size));
    ok!(cu.cuModuleLoadData(&mut module, image));
    cu.later(Cleanup::Module(module));
    ok!(cu.cuLinkDestroy(link));
    same!(cu, written(cu, module)?, 9);
    let wrong = Wrapper { data: text.as_ptr(), ..wrapper };
    want!(INVALID_IMAGE, cu.cuModuleLoadFatBinary(&mut module, ptr::from_ref(&wrong).cast()));
    Ok(())
}

fn null_arguments(cu: &Cuda<'_>) -> CaseResult {
    let mut module = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuModuleLoadFatBinary(&mut module, ptr::null()));
    let container = container(&[]);
    want!(INVALID_VALUE, cu.cuModuleLoadFatBinary(ptr::null_mut(), container.as_ptr().cast()));
    Ok(())
}
