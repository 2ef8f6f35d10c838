//go:build !linux

package servers

import "syscall"

func signalOnParentDeath(*syscall.SysProcAttr, syscall.Signal) {}
