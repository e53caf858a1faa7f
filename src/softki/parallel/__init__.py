"""The processes of a group of `torch.distributed` that share a fit."""
