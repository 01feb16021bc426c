//! Cells whose system calls are recorded.

use std::io::Read;
use std::sync::mpsc;

use portcullis_jail::{LaunchSpec, Syscall, SyscallListener, denied_call, recorded_call};

use super::*;

/// Runs a recorded program, and returns its output and the names of its recorded calls.
pub(crate) fn recorded(launch: LaunchSpec) -> (String, Vec<&'static str>) {
    recorded_with(launch, SyscallListener::deny)
}

/// As [`recorded`], with this answer to calls that are not otherwise recorded.
fn recorded_with(mut launch: LaunchSpec, answer: fn(&SyscallListener, &Syscall)) -> (String, Vec<&'static str>) {
    launch.cell.recorded = true;
    let has_deputy = !launch.cell.protected_names.is_empty();
    let mut started = start(&launch);
    let (tell, told) = mpsc::channel();
    let listening = std::thread::spawn(move || {
        let listener = SyscallListener::new(told.recv().unwrap());
        let mut names = Vec::new();
        while let Some(call) = listener.receive().unwrap() {
            assert!(listener.still_waits(&call));
            match recorded_call(call.number) {
                Some(known) => {
                    names.push(known.name);
                    listener.continue_call(&call);
                }
                None => {
                    names.push(denied_call(call.number).unwrap_or("socket"));
                    answer(&listener, &call);
                }
            }
            assert!(has_deputy || !listener.still_waits(&call));
        }
        names
    });
    started.control.ready(|listener| tell.send(listener).unwrap()).unwrap_or_else(|refusal| panic!("{refusal}"));
    drop(started.input);
    let mut said = String::new();
    started.output.read_to_string(&mut said).unwrap();
    started.process.wait().unwrap();
    (said, listening.join().unwrap())
}

#[test]
fn a_recorded_cell_reports_what_is_tried_and_is_the_same_cell() {
    each(|_| {
        let script = "cat /home/source/absent || echo absent; unshare -U true || echo denied; \
                      echo kept > /home/source/kept && cat /home/source/kept; echo > /usr/new || echo refused";
        let (said, names) = recorded(shell(script));
        assert_eq!(said, "absent\ndenied\nkept\nrefused\n");
        for name in ["execve", "openat", "unshare"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        assert_eq!(says(script).lines().filter(|line| !line.contains(':')).collect::<Vec<_>>().join("\n") + "\n", said);
    });
}

#[test]
fn a_recorded_cell_has_no_unix_socket() {
    each(|_| {
        let script = "import socket\ntry: socket.socket(socket.AF_UNIX)\nexcept PermissionError: print('denied')\n\
                      socket.socket(socket.AF_INET); print('allowed')";
        let mut launch = shell("");
        launch.program = "/usr/bin/python3".into();
        launch.arguments = vec!["-ISc".into(), script.into()];
        if !launch.program.exists() {
            return;
        }
        let (said, names) = recorded(launch);
        assert_eq!(said, "denied\nallowed\n");
        assert!(names.contains(&"socket"), "{names:?}");
    });
}

#[test]
fn what_stands_in_for_a_unix_socket_leads_nowhere_and_its_connection_is_reported() {
    each(|_| {
        let script = "import os, socket\ns = socket.socket(socket.AF_UNIX)\n\
                      calls = [lambda: s.bind('/home/source/own'), lambda: s.bind('\\0own'), lambda: s.listen(),\n\
                      lambda: s.connect('/run/docker.sock'), lambda: s.send(b'x'), lambda: os.write(s.fileno(), b'x')]\n\
                      for call in calls:\n  try: call(); print('done')\n  except OSError as e: print(e.strerror)\n\
                      print(os.read(s.fileno(), 1), os.path.exists('/home/source/own'), s.get_inheritable())";
        let mut launch = shell("");
        launch.program = "/usr/bin/python3".into();
        launch.arguments = vec!["-ISc".into(), script.into()];
        if !launch.program.exists() {
            return;
        }
        let (said, names) = recorded_with(launch, |listener, call| assert!(listener.stand_in_for_socket(call)));
        let no_socket = "Socket operation on non-socket\n".repeat(5);
        assert_eq!(said, format!("{no_socket}Bad file descriptor\nb'' False False\n"));
        assert!(names.contains(&"socket") && names.contains(&"connect"), "{names:?}");
    });
}

#[test]
fn a_recorded_cell_reports_every_way_to_send() {
    each(|_| {
        let script = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                      s.sendto(b'x', ('127.0.0.1', 9)); s.sendmsg([b'x'], [], 0, ('127.0.0.1', 9)); print('sent')";
        let mut launch = shell("");
        launch.program = "/usr/bin/python3".into();
        launch.arguments = vec!["-ISc".into(), script.into()];
        if !launch.program.exists() {
            return;
        }
        let (said, names) = recorded(launch);
        assert_eq!(said, "sent\n");
        assert!(names.contains(&"sendto") && names.contains(&"sendmsg"), "{names:?}");
    });
}

#[test]
fn a_source_has_no_listener_of_its_own_even_if_the_recorder_is_gone() {
    each(|_| {
        // A filter that allows everything, with a listener: seccomp(SECCOMP_SET_MODE_FILTER, NEW_LISTENER, &program).
        let script = "import ctypes, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                      step = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n\
                      program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(step)))\n\
                      number = {'x86_64': 317, 'aarch64': 277}[__import__('os').uname().machine]\n\
                      print(libc.syscall(number, 1, 8, program), libc.syscall(number, 1, 0, program))";
        let mut launch = shell("");
        launch.program = "/usr/bin/python3".into();
        launch.arguments = vec!["-ISc".into(), script.into()];
        if !launch.program.exists() {
            return;
        }
        assert_eq!(output(&launch).0, "-1 0\n", "in a cell that is not recorded");
        assert_eq!(recorded(launch).0, "-1 0\n");
    });
}

#[test]
fn a_recorded_program_that_is_refused_says_why() {
    each(|_| {
        let mut launch = shell("true");
        launch.directory = "/nowhere".into();
        launch.cell.recorded = true;
        assert!(refusal(&launch).to_string().contains("/nowhere"));
    });
}
