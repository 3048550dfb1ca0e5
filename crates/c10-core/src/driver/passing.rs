//! Descriptors that go from process to process with a message of a Unix socket (`SCM_RIGHTS`).
//!
//! Each message is one byte and at most [`AT_ONCE`] descriptors. Whoever receives gets descriptors of its own, which programs
//! that it starts do not inherit.
//!
//! # Safety
//! Every unsafe block is one call of the system with structures that outlive it, or takes over a descriptor that the system
//! has just made for this process. Control messages are bytes that are laid out here, as 64-bit Linux has them.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

/// Descriptors of one message; the system allows 253.
const AT_ONCE: usize = 64;

/// Bytes of the header of a control message: its length with the header, a level and a type.
const HEADER: usize = size_of::<libc::cmsghdr>();
const _: () = assert!(HEADER == 16, "the length has eight bytes");

/// Sends descriptors; the receiver knows how many.
pub(crate) fn send_descriptors(to: &UnixStream, descriptors: &[OwnedFd]) -> io::Result<()> {
    for some in descriptors.chunks(AT_ONCE) {
        let mut control = (HEADER + 4 * some.len()).to_ne_bytes().to_vec();
        control.extend(libc::SOL_SOCKET.to_ne_bytes());
        control.extend(libc::SCM_RIGHTS.to_ne_bytes());
        control.extend(some.iter().flat_map(|descriptor| descriptor.as_raw_fd().to_ne_bytes()));
        send_message(to, &mut words_of(&control))?;
    }
    Ok(())
}

/// Receives as many descriptors as were asked for. One that sends others is an error.
pub(crate) fn receive_descriptors(from: &UnixStream, count: usize) -> io::Result<Vec<OwnedFd>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the sender has sent other descriptors than expected");
    let mut received = Vec::new();
    while received.len() < count {
        let expected = (count - received.len()).min(AT_ONCE);
        let some = receive_message(from)?;
        if some.len() != expected {
            return Err(wrong());
        }
        received.extend(some);
    }
    Ok(received)
}

/// The user that the process at the other end belongs to.
pub(crate) fn peer_user(of: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = u32::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    let to = ptr::from_mut(&mut peer).cast();
    // SAFETY: the structure is as long as the length says, and both outlive the call.
    let answer = unsafe { libc::getsockopt(of.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut length) };
    if answer == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// The user that this process belongs to.
pub(crate) fn own_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Bytes in words, since the system wants control messages aligned so.
fn words_of(bytes: &[u8]) -> Vec<u64> {
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// A message of one byte with a buffer for a control message.
fn message(part: &mut libc::iovec, control: &mut [u64]) -> libc::msghdr {
    libc::msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: ptr::from_mut(part),
        msg_iovlen: 1,
        msg_control: control.as_mut_ptr().cast(),
        msg_controllen: size_of_val(control),
        msg_flags: 0,
    }
}

fn send_message(to: &UnixStream, control: &mut [u64]) -> io::Result<()> {
    let mut byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut sent = message(&mut part, control);
    // The length in the header is the exact one; the words may be four bytes longer, which the system allows for.
    sent.msg_controllen = size_of_val(control);
    // SAFETY: the message, its byte and its control words outlive the call.
    let answer = unsafe { libc::sendmsg(to.as_raw_fd(), &raw const sent, libc::MSG_NOSIGNAL) };
    if answer == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn receive_message(from: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0_u64; HEADER / 8 + AT_ONCE / 2];
    let mut received = message(&mut part, &mut control);
    // SAFETY: the message, its byte and its control words outlive the call.
    let answer = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut received, libc::MSG_CMSG_CLOEXEC) };
    let (length, flags) = (received.msg_controllen, received.msg_flags);
    match answer {
        1 => {}
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        _ => return Err(io::Error::last_os_error()),
    }
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
    let descriptors = descriptors_of(&bytes);
    // Those that did arrive are closed as they are dropped.
    let is_cut = flags & libc::MSG_CTRUNC != 0;
    if is_cut { Err(io::Error::other("the system could not hand over all descriptors")) } else { Ok(descriptors) }
}

/// The descriptors of a control message of theirs; none of another one.
fn descriptors_of(control: &[u8]) -> Vec<OwnedFd> {
    let Some((header, numbers)) = control.split_first_chunk::<HEADER>() else { return Vec::new() };
    let word = |at: usize| i32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if (word(8), word(12)) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return Vec::new();
    }
    let mut length = [0; 8];
    length.copy_from_slice(&header[..8]);
    let count = usize::from_ne_bytes(length).saturating_sub(HEADER) / 4;
    let take = |number: &[u8]| {
        let number = i32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
        // SAFETY: the system has made the descriptor for this process with this message.
        unsafe { OwnedFd::from_raw_fd(number) }
    };
    numbers.chunks_exact(4).take(count).map(take).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn many_descriptors_arrive_in_order() {
        let (from, to) = UnixStream::pair().unwrap();
        let files = ["/proc/self/stat", "/proc/self/status", "/proc/self/cmdline"];
        let sent: Vec<OwnedFd> = (0..150).map(|at| File::open(files[at % 3]).unwrap().into()).collect();
        send_descriptors(&from, &sent).unwrap();
        let received = receive_descriptors(&to, 150).unwrap();
        let inode = |descriptor: OwnedFd| File::from(descriptor).metadata().unwrap().ino();
        let inodes = |all: Vec<OwnedFd>| all.into_iter().map(inode).collect::<Vec<_>>();
        assert_eq!(inodes(received), inodes(sent));
        assert_eq!(peer_user(&to).unwrap(), own_user());
    }

    #[test]
    fn what_is_not_sent_is_not_received() {
        let (mut from, to) = UnixStream::pair().unwrap();
        from.write_all(b"x").unwrap();
        let refused = receive_descriptors(&to, 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        send_descriptors(&from, &[File::open("/proc/self/stat").unwrap().into()]).unwrap();
        assert!(receive_descriptors(&to, 2).is_err(), "fewer than were asked for");
        drop(from);
        assert_eq!(receive_descriptors(&to, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
